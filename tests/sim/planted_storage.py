"""Mistakes in what a node does with damaged files, planted by an auditor.

While one warning excused a whole run no seed noticed them; ``tests.sim.planting`` plants one.
"""

from __future__ import annotations

from tests.sim.planting import Edit, Mistake, edit

__all__ = ["STORAGE"]

_GUARDED = "tests/nodes/recovery/test_damaged_checkpoints.py"

STORAGE: dict[str, Mistake] = {
    "one copy of the catalog": Mistake(
        area="catalog",
        about="The second copy of a catalog is never written: one damaged file takes away what runs.",
        edits=edit(
            "runtime.engine_host.node_groups:write_catalog",
            "dict.fromkeys(catalog_names(token), sealed)",
            "{catalog_names(token)[0]: sealed}",
        ),
        scenarios=("nodes", "storage"),
        seed=0,
        shows="SimulationError: disk: ",
    ),
    "tidied after a fall-back": Mistake(
        area="recovery",
        about="A node that has fallen back to an older catalog deletes what that doesn't name.",
        edits=edit("runtime.repair.startup:NodeFolder.tidy", "if self.fell_back:\n        return", ""),
        # What the older catalog doesn't name is in doubt, so it counts as named.
        beside=(Edit("runtime.repair.startup:NodeFolder._doubt_all", "in self._unnamed.items()", "in ()"),),
        scenarios=(),
        tests="tests/runtime/test_repair.py",
    ),
    "what checkpoints saw is ignored": Mistake(
        area="recovery",
        about="A node goes by an older catalog although a checkpoint saw a newer one, and says nothing.",
        edits=edit(
            "runtime.repair.startup:NodeFolder._is_older",
            "if self._witness > catalogs.token:\n        return True",
            "",
        ),
        scenarios=("storage",),
        seed=4,
        shows="SimulationError: start: ",
    ),
    "no mark of the first checkpoint": Mistake(
        area="checkpoints",
        about="The first checkpoint leaves no mark: once it is lost the fragment begins anew, under numbers "
        "that readers have.",
        edits=edit(
            "runtime.engine_host.node_groups:NodeGroups._mark",
            "self._store.write(begun_name(fragment, token), seal({}, facts))",
            "pass",
        ),
        scenarios=("nodes", "storage"),
        seed=0,
        shows="SimulationError: disk: ",
    ),
    "lost state begins anew": Mistake(
        area="recovery",
        about="A fragment of which no checkpoint is whole begins with nothing instead of waiting.",
        edits=edit(
            "runtime.repair.startup:NodeFolder.examine",
            "if name not in found.saved and owner_of(name) in found.begun:",
            "if False:",
        ),
        scenarios=("storage",),
        seed=100,
        shows="SimulationError: start: ",
    ),
    "a torn log isn't cut": Mistake(
        area="decision log",
        about="What an interrupted write left at the end of a decision log stays there, and hides what is "
        "written behind it.",
        edits=edit(
            "runtime.repair.startup:NodeFolder.tidy",
            "self._journal.cut(each.number, each.stays)",
            "pass",
        ),
        scenarios=("storage", "union"),
        seed=91,
        shows="SimulationError: start: ",
    ),
    "decisions after a gap are used": Mistake(
        area="decision log",
        about="A file of the decision log that begins beyond the checkpoint is repeated although decisions "
        "are missing before it: rows leave in another order under the same numbers.",
        edits=edit(
            "runtime.repair.found_decisions:find_decisions",
            "if records[0].first > at[name]:",
            "if False:",
        ),
        scenarios=("storage",),
        seed=165,
        shows="SimulationError: start: ",
    ),
    "one checkpoint too few": Mistake(
        area="checkpoints",
        about="Only the newest checkpoint is kept: where it is damaged there is none before it.",
        edits=edit(
            "runtime.engine_host.hosted:HostedFragment.wrote",
            "kept = [*other, *last] if len(wholes) == 1 else last",
            "kept = last[-1:]",
        ),
        scenarios=("storage", "nodes"),
        seed=4,
        shows="SimulationError: start: ",
    ),
    "adopted although another has it": Mistake(
        area="doubt",
        about="A node takes a fragment in doubt that another node has too: both run it.",
        edits=edit("nodes.repair.resolution:DoubtResolution._judge", "elif last is not None:", "elif False:"),
        scenarios=("storage",),
        seed=20,
        shows="SimulationError: doubt: ",
    ),
    "an older state of a guarded fragment goes on": Mistake(
        area="takeover",
        about="The owner of a fragment goes on from the checkpoint before the damaged one, although others "
        "stand by that have all of it.",
        edits=edit(
            "runtime.repair.startup:NodeFolder._lacks_newest",
            "return max(numbers)",
            "return False and max(numbers)",
        ),
        tests=f"{_GUARDED}::test_a_damaged_checkpoint_costs_nothing_that_another_node_has",
    ),
    "decisions are lost, and the owner goes on": Mistake(
        area="takeover",
        about="The owner of a fragment goes on without decisions that its disk lost: readers are ahead of "
        "another order of the same rows, which a secondary knows.",
        edits=edit(
            "runtime.repair.startup:NodeFolder._find_decisions",
            'if name in read.lost or "" in read.lost',
            "if False",
        ),
        tests=f"{_GUARDED}::test_no_single_file_of_the_owner_costs_a_row",
    ),
    "what is left goes before another has begun": Mistake(
        area="takeover",
        about="What is left of a damaged fragment is deleted as soon as another node is chosen, which may "
        "have lost it too.",
        edits=edit(
            "nodes.recovery.succession:Succession.decided",
            "if role in (Role.SECONDARY, Role.OTHER):",
            "if role in (Role.SECONDARY, Role.OTHER, Role.PREDECESSOR):",
        ),
        tests=f"{_GUARDED}::test_where_nobody_has_more_the_checkpoint_before_goes_on_and_what_is_missing_is_told",
    ),
    "judged before peers were heard": Mistake(
        area="doubt",
        about="A node judges what is in doubt by what the peers said that it has heard so far.",
        edits=edit("nodes.repair.resolution:DoubtResolution.tick", "if heard and", "if True or heard and"),
        scenarios=("storage",),
        tests="tests/runtime/test_old_catalog.py",
        seed=None,
        shows="SimulationError: doubt: ",
    ),
}
