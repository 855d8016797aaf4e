"""A coordinator believes only answers to what it asked in this life."""

from __future__ import annotations

from medusa.nodes.catalog.catalog import DEPLOYING, REMOVING, RUNNING, Catalog, Deployment
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.deploy.coordinator import DeploymentCoordinator
from medusa.nodes.deploy.taken_over import TakenOverDeployments
from medusa.nodes.placement.placement import PlacementPlan
from medusa.wire.limits import SEQ_MAX
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.outbox import Outbox, Send


def coordinator(incarnation):
    catalog, outbox = Catalog("a"), Outbox()
    catalog.deployments["q"] = Deployment(
        query="q", nodes=("b", "c"), state=DEPLOYING, client="x", request=1, streams=()
    )
    tokens = iter(range(1, 1000))
    numbers = iter(range(1, 1000))
    made = DeploymentCoordinator(
        catalog,
        outbox=outbox,
        timeout_us=1_000_000,
        incarnation=incarnation,
        saver=CatalogWriter(catalog, outbox=outbox, next_token=lambda: next(tokens)),
        install=lambda request, fragment, owner: Reply(request=request),
        way=lambda number, fragment: (Install(request=number, query="q", fragment=fragment.name), b""),
        remove=lambda request, query: Reply(request=request),
        succeeded=TakenOverDeployments(
            catalog, outbox=outbox, number=lambda: next(numbers), is_up=lambda node: True
        ),
    )
    made.resume(0)
    return made, catalog, outbox


def asked(outbox):
    return [e for e in outbox.take() if isinstance(e, Send) and isinstance(e.message, Install | Remove)]


def test_a_late_answer_to_a_former_life_answers_no_question_of_this_one():
    former, *rest = (asked(coordinator(life)[2]) for life in (5, 6, (1 << 32) - 1))
    now, catalog, outbox = coordinator(6)
    questions = asked(outbox)
    for send in former:
        now.reply(1, send.peer, Reply(request=send.message.request))
    assert catalog.deployments["q"].state == REMOVING
    assert now.stale == 2
    for send in questions:
        now.reply(2, send.peer, Reply(request=send.message.request))
    assert catalog.deployments == {}
    assert now.stale == 2
    assert all(0 <= send.message.request <= SEQ_MAX for sends in rest for send in sends)


def test_who_asks_again_while_its_query_is_undone_is_answered():
    """The node died half way through the deployment; its client asks again before all have forgotten it."""
    made, _, outbox = coordinator(6)
    outbox.take()
    made.deploy(1, "x", 1, PlacementPlan(query="q", fragments=()))
    (send,) = [e for e in outbox.take() if isinstance(e, Send)]
    assert send.message.code == "E_DEPLOYED"
    assert "being removed" in send.message.text
    assert "again" in send.message.hint


def test_who_asks_again_for_a_removal_that_is_done_hears_so_again():
    """Its answer was lost on the way."""
    made, catalog, outbox = coordinator(6)
    made.undeploy(1, "x", 7, "q")
    for send in asked(outbox):
        made.reply(2, send.peer, Reply(request=send.message.request))
    assert catalog.deployments == {}
    (first,) = replies(outbox)
    assert (first.peer, first.message) == ("x", Reply(request=7))
    assert made.answered("x", 7)
    assert replies(outbox) == [], "it waits for the disk already"
    made._saver.written(3, first.after, True)
    assert made.answered("x", 7)
    (again,) = replies(outbox)
    assert (again.peer, again.message) == ("x", Reply(request=7))
    assert not made.answered("x", 8)
    assert not made.answered("y", 7)


def test_who_asks_again_hears_that_its_query_runs_once_the_disk_says_so():
    """The node died after it had said so, and undid the deployment when it was back."""
    made, catalog, outbox = coordinator(6)
    outbox.take()
    catalog.deployments["q"].state = RUNNING
    made._saver.save()
    made.deploy(1, "x", 1, PlacementPlan(query="q", fragments=()))
    (held,) = replies(outbox)
    assert (held.peer, held.message) == ("x", Reply(request=1))
    assert held.after > made._saver.durable
    for token in range(1, held.after + 1):
        made._saver.written(2, token, True)
    made.deploy(3, "x", 1, PlacementPlan(query="q", fragments=()))
    (again,) = replies(outbox)
    assert (again.message, again.after) == (Reply(request=1), None)


def replies(outbox):
    """Answers to clients, the durable and those that wait to be."""
    return [e for e in outbox.take() if isinstance(e, Send) and isinstance(e.message, Reply)]
