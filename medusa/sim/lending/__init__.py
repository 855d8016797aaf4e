"""Fragments that go to nodes of other participants and come home: scenarios of whole nodes, and a checker."""
