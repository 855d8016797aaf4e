"""A deployment: all nodes take their fragments, or none keeps one.

``nodes.catalog.deployment_automaton`` has the states. A coordinator that finds "deploying" when it comes back
hears first what the nodes have (``nodes.deploy.unfinished_deployments``): where that is all of it the
query runs, where some is missing it removes what it began. A client that removes the query meanwhile removes
all of it.
Asking twice is harmless: installing what is installed, and removing what isn't there, succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from medusa.nodes.catalog.catalog import DEPLOYING, REMOVING, RUNNING, Catalog, Deployment
from medusa.nodes.catalog.deployment_automaton import DeploymentEvent
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.deploy.client_limit import PendingAnswers, no_room
from medusa.nodes.deploy.taken_over import TakenOverDeployments
from medusa.nodes.deploy.unfinished_deployments import UnfinishedDeployments
from medusa.nodes.deploy.wording import (
    BEGINS,
    CONTENDED,
    CONTENDED_AGAIN_US,
    CONTENDED_US,
    DeploymentAttempt,
    DeploymentQuestion,
    from_node,
    put_abroad,
    silent,
    taken,
    there_already,
    undeployed,
    undone,
)
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.recovered_outputs import ways_of
from medusa.nodes.requests import AGAIN_US, Request, Requests
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.codec import graph_to_msgpack
from medusa.query.published_stream import reads_of
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.messages.configuration import QueryParts
from medusa.wire.messages.remote import Instantiate
from medusa.wire.outbox import Outbox

__all__ = ["DeploymentCoordinator"]

NEWS_US = 1_000_000
"""A query that was just removed elsewhere may be in our catalog for so long."""

LOOK_US = 50_000
WAITING_MAX = 100

REQUESTS_PER_LIFE = 1 << 20
"""The numbers of our questions begin at this times our incarnation, so that an answer to a question
of an earlier life answers none of this one."""


ANSWERED_MAX = 1000
"""Removals whose client may ask again, since the answer was lost on its way."""

_E = DeploymentEvent


class DeploymentCoordinator:
    """Deployments taken from clients of this node.

    Args:
        catalog: where deployments are written; ``saver`` makes it durable.
        incarnation: of this node; larger than in any earlier life.
        way: how a node is told to run a fragment: the message with this number, and its payload.
        install, remove: do it on this node, as if asked by itself; give a Reply. What is removed also takes
            these fragments along, which were taken over here.
        succeeded: what nodes lack of deployments that another one began, and this one has taken over.
        elsewhere: the other node that has deployed a query, as far as is known here; empty: none.
        outranks: the other one that goes before us, if it began at the same time; empty: none.
        readers: other queries of ours that read a sink of a query, as far as is known here.
        abroad: the participant of another one's node; empty: it is of our own.
        unfinished: what other nodes have of deployments of an earlier life; None: nobody is asked.
        guarded: told of each plan that is spread, and the number of the first request by which it is.
        unguarded: told of each query whose removal begins: nobody takes any of it over from then on. Gives
            the fragments that may have been taken over here.
        is_up: whether a node is heard here.

    Attributes:
        stale: answers of nodes to questions that are not open: late, repeated or of an earlier life.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        outbox: Outbox,
        timeout_us: int,
        incarnation: int,
        saver: CatalogWriter,
        install: Callable[[int, FragmentSpec, str], Reply | None],
        way: Callable[[int, FragmentSpec], tuple[Install | Instantiate, bytes | None]],
        remove: Callable[[Remove, Collection[str]], Reply],
        succeeded: TakenOverDeployments,
        elsewhere: Callable[[str], str] = lambda query: "",
        outranks: Callable[[str], str] = lambda query: "",
        readers: Callable[[str], list[str]] = lambda query: [],
        abroad: Callable[[str], str] = lambda node: "",
        unfinished: UnfinishedDeployments | None = None,
        guarded: Callable[[int, PlacementPlan, int], None] = lambda now_us, plan, request: None,
        unguarded: Callable[[str], Collection[str]] = lambda query: (),
        is_up: Callable[[str], bool] = lambda node: True,
    ) -> None:
        self._guarded, self._unguarded, self._is_up = guarded, unguarded, is_up
        self._catalog = catalog
        self._outbox = outbox
        self._timeout_us = timeout_us
        self.stale = 0
        self.elsewhere, self.outranks, self.readers = elsewhere, outranks, readers
        self.abroad = abroad
        self.unfinished = unfinished
        self._succeeded = succeeded
        self._waiting: dict[tuple[str, int], tuple[int, PlacementPlan, int]] = {}
        """Who asked for a query that is elsewhere, or for a new version of a definition, and its request ->
        until when we wait for news, or until the old one is removed; what."""
        self._look_at_us = 0
        self._saver = saver
        self._install = install
        self._way = way
        self._remove = remove
        self._attempts: dict[str, DeploymentAttempt] = {}
        self._questions: Requests[DeploymentQuestion] = Requests()
        self._answered: dict[tuple[str, int], int] = {}
        """Who asked for a removal that is done, and its request -> the token that holds it; of this life."""
        self._answers = PendingAnswers(lambda: saver.durable)
        self._request = incarnation * REQUESTS_PER_LIFE
        self._forgetful: set[str] = set()

    def resume(self, now_us: int) -> None:
        """After a start: finish what was being removed; of what was being deployed, hear what there is."""
        self._succeeded.resume(now_us)
        for deployment in list(self._catalog.deployments.values()):
            if deployment.state == DEPLOYING and deployment.query in self._attempts:
                continue  # Of this life: others were taken up again beside it.
            if deployment.state == DEPLOYING and self.unfinished is not None:
                self.unfinished.begin(now_us, deployment.query)
            elif deployment.state != RUNNING:
                again = deployment.state == REMOVING
                self._begin_removal(now_us, deployment, _E.RESUME if again else _E.UNDO)

    def _judge(self, now_us: int) -> None:
        """Deployments that an earlier life left half done, or whose end the catalog on disk doesn't know."""
        for deployment, whole in self.unfinished.judged(now_us) if self.unfinished is not None else ():
            if whole is None:
                text = "query stays deploying: nodes of other participants don't tell what they have"
                self._report(deployment, "warning", text, query=deployment.query)
                continue
            attempt, code = self._attempts.pop(deployment.query, None), ""
            if not whole or self.outranks(deployment.query):
                self._begin_removal(now_us, deployment, _E.UNDO)
                code = "E_DEPLOYED"
            else:
                deployment.step(_E.INSTALLED)
                text = "query runs: every node has its part"
                self._report(deployment, "warning", text, query=deployment.query)
            token = self._saver.save()
            if attempt is not None:
                self._answer(attempt.client, undone(attempt.request, code, deployment.query), after=token)

    def _remove_incomplete(self, now_us: int) -> None:
        """Deployments whose coordinator was lost amid them: nobody else has what is missing, so they go."""
        for each in self._succeeded.incomplete():
            deployment = self._catalog.deployment(each.query)
            if deployment is None or deployment.state != RUNNING or self.readers(each.query):
                continue  # Another query takes it for one that runs: both stay until somebody removes that.
            what = "query removed: its coordinator was lost while it was deployed"
            self._outbox.report("warning", what, query=each.query, node=each.node, why=each.why)
            self._begin_removal(now_us, deployment, _E.REMOVE)

    # --- what clients ask -----------------------------------------------------------------------

    def redefine(self, now_us: int, client: str, request: int, plan: PlacementPlan, defined: int) -> None:
        """Remove a running definition, and spread this one once every node that had it has forgotten it."""
        self._begin_removal(now_us, self._catalog.deployments[plan.query], _E.REMOVE)
        if plan.query in self._catalog.deployments:
            self._waiting[client, request] = now_us + self._timeout_us, plan, defined
            self._look_at_us = now_us + LOOK_US
        else:
            self.deploy(now_us, client, request, plan, defined=defined)

    def deploy(
        self, now_us: int, client: str, request: int, plan: PlacementPlan, *, defined: int = 0
    ) -> None:
        """Spread a plan over its nodes; the client hears once, when it is done or undone.

        Args:
            defined: of a stream defined by name, the version of the definition.
        """
        known = self._catalog.deployment(plan.query)
        if known is not None:
            same = (known.client, known.request) == (client, request)
            if same and known.state == RUNNING:
                self.runs(client, request)
            elif same and self.unfinished is not None and self.unfinished.waits(plan.query):
                self._attempts.setdefault(
                    plan.query,
                    DeploymentAttempt(client=client, request=request, deadline_us=now_us + self._timeout_us),
                )
            elif not (same and known.state == DEPLOYING):
                # The same question while it is undone: this node died in between, or its answer was lost.
                what = "being removed" if known.state == REMOVING else "deployed already"
                self._answer(client, taken(request, plan.query, what))
            return
        owner = self._catalog.coordinator_of(plan.query, self._catalog.node)
        if owner != self._catalog.node:
            self._is_there(client, request, plan.query, owner)
            return
        other = self._other(plan.query)
        if other and len(self._waiting) >= WAITING_MAX:
            self._is_there(client, request, plan.query, other)
        elif other:
            self._waiting.setdefault((client, request), (now_us + NEWS_US, plan, defined))
            self._look_at_us = now_us + LOOK_US
        elif defined <= 1 and (
            busy := no_room(client, request, self._attempts.values(), self._answers.waiting())
        ):  # Of a later version the one before is gone by now.
            self._answer(client, busy)
        else:
            self._spread(now_us, client, request, plan, defined)

    def is_on(self, client: str, request: int) -> bool:
        """Whether this very question has been taken, and will be answered."""
        taken = any((each.client, each.request) == (client, request) for each in self._attempts.values())
        return taken or (client, request) in self._waiting

    def runs(self, client: str, request: int) -> None:
        """Say that it runs already, as was asked for; that may be on its way to disk."""
        after = None if self._saver.idle else self._saver.save()
        self._answer(client, Reply(request=request), after=after)

    def _other(self, query: str) -> str:
        """The other node that coordinates a query of this name, as far as is known here; empty: none does."""
        kept = self._catalog.configuration(query)
        known = kept is not None and kept.current.parts is not None
        by = kept.current.coordinator if known and kept is not None else self._catalog.node
        # If it was removed while we were away we hear so any moment.
        return by if by != self._catalog.node else self.elsewhere(query)

    def _is_there(self, client: str, request: int, query: str, owner: str) -> None:
        self._answer(client, there_already(request, query, owner, self.abroad(owner)))

    def _look(self, now_us: int) -> None:
        """Whether what was asked for is still elsewhere, or being removed."""
        if not self._waiting or now_us < self._look_at_us:
            return
        self._look_at_us = now_us + LOOK_US
        for (client, request), (until_us, plan, defined) in list(self._waiting.items()):
            owner = self._other(plan.query)
            going = defined > 1 and plan.query in self._catalog.deployments
            if (owner or going) and now_us < until_us:
                continue
            del self._waiting[client, request]
            if owner:
                self._is_there(client, request, plan.query, owner)
            else:
                self.deploy(now_us, client, request, plan, defined=defined)

    def _spread(self, now_us: int, client: str, request: int, plan: PlacementPlan, defined: int) -> None:
        streams = tuple(
            (name, fragment.node)
            for fragment in plan.fragments
            for name in (*fragment.entries.values(), *fragment.streams.values())
        )
        self._catalog.deployments[plan.query] = Deployment(
            query=plan.query,
            nodes=(*plan.nodes(), *plan.idle()),
            idle=plan.idle(),
            recovered=ways_of(plan),
            state=DEPLOYING,
            client=client,
            request=request,
            streams=streams,
            defined=defined,
            began=self._request + 1,
            definition=graph_to_msgpack(plan.fragments[0].graph) if defined else b"",
            reads=tuple(
                source.of or "" for fragment in plan.fragments for source in reads_of(fragment.graph).values()
            ),
            abroad=put_abroad(plan.fragments, self.abroad),
        )
        self._guarded(now_us, plan, self._request + 1)
        token = self._saver.save()
        attempt = DeploymentAttempt(
            client=client,
            request=request,
            deadline_us=now_us + self._timeout_us,
            contended_until_us=now_us + min(CONTENDED_US, self._timeout_us // 2),
        )
        self._attempts[plan.query] = attempt
        for fragment in plan.fragments:
            self._request += 1
            message, payload = self._way(self._request, fragment)
            message = self._of_life(message)
            question = DeploymentQuestion(
                query=plan.query, message=message, payload=payload, after=token, fragment=fragment
            )
            made = self._questions.open(now_us, self._request, fragment.node, question)
            attempt.installs[self._request] = made
            if fragment.node != self._catalog.node:
                self._ask(made)
        self._install_own(now_us, attempt)

    def _of_life(self, message: Install | Instantiate) -> Install | Instantiate:
        """The same, and of which query of that name it speaks."""
        kept = self._catalog.configuration(message.query)
        if kept is None or not isinstance(message, Install):
            return message
        return msgspec.structs.replace(message, life=kept.current.life)

    def _install_own(self, now_us: int, attempt: DeploymentAttempt) -> None:
        """Our own part comes last, when the streams it reads are there."""
        me = self._catalog.node
        if any(each.to != me for each in attempt.installs.values()):
            return
        for number, each in list(attempt.installs.items()):
            if self._questions.get(number) is not None and each.order.fragment is not None:
                self._install_here(now_us, number, each.order.fragment)

    def _install_here(self, now_us: int, number: int, fragment: FragmentSpec) -> None:
        reply = self._install(number, fragment, self._catalog.node)
        if reply is not None:  # Else it comes by itself.
            self.reply(now_us, self._catalog.node, reply)

    def undeploy(self, now_us: int, client: str, request: int, query: str) -> None:
        """Remove a query from all its nodes; the client hears when every node has forgotten it."""
        deployment = self._catalog.deployments[query]
        if deployment.state == RUNNING and (readers := self.readers(query)):
            text = f"{query!r} is read by query {', '.join(map(repr, readers[:8]))}"
            hint = f"undeploy {readers[0]} first"
            self._answer(client, Reply(request=request, code="E_READ", text=text, hint=hint))
            return
        judged = self.unfinished is not None and self.unfinished.drop(query)
        if deployment.state == DEPLOYING and not judged:
            text, hint = f"query {query!r} is being deployed", "try again in a moment"
            self._answer(client, Reply(request=request, code="E_DEPLOYED", text=text, hint=hint))
            return
        before = self._attempts.get(query)
        same = before is not None and (before.client, before.request) == (client, request)
        if same and deployment.state == REMOVING:
            return  # Asked again: it is under way.
        self._attempts[query] = DeploymentAttempt(
            client=client, request=request, deadline_us=now_us + self._timeout_us
        )
        if deployment.state == RUNNING or judged or deployment.began:
            self._begin_removal(now_us, deployment, _E.REMOVE)
        if judged and before is not None:
            self._answer(before.client, undeployed(before.request, query), after=self._saver.save())

    def answered(self, client: str, request: int) -> bool:
        """Whether this very removal was asked for before and is done; then it is answered as it was."""
        token = self._answered.get((client, request))
        if token is None:
            return False
        self._answer(client, Reply(request=request), after=token)
        return True

    # --- a role that others take over -------------------------------------------------------------

    def took_over(self, now_us: int, query: str, parts: QueryParts) -> None:
        """This node coordinates a query from now on that another one has deployed."""
        self._catalog.deployments[query] = Deployment(
            query=query,
            nodes=parts.nodes,
            state=RUNNING,
            client=self._catalog.node,
            request=0,
            streams=parts.streams,
            reads=parts.reads,
            recovered=parts.recovered,
            taken_over=True,
        )
        self._succeeded.begin(now_us, query)

    def handed_over(self, query: str, to: str) -> None:
        """Another node coordinates a query now: nothing of it is installed, undone or removed from here, and
        who waits hears whom to ask."""
        deployment = self._catalog.hand_over(query)
        self._drop_questions(query)
        if self.unfinished is not None:
            self.unfinished.drop(query)
        self._succeeded.forget(query)
        attempt = self._attempts.pop(query, None)
        if attempt is not None:
            text = (
                f"query {query!r} is {deployment.state}; node {to!r} coordinates it since this one was away"
            )
            why = Reply(request=attempt.request, code="E_MOVED", text=text, hint=f"ask node {to!r}")
            self._answer(attempt.client, why, after=self._saver.save())

    def ended(self, now_us: int, query: str, nodes: Iterable[str]) -> None:
        """Another node says that a query was removed, or is told to remove it by one that knows: all of it
        goes, whoever began, since that may never come back.

        Args:
            nodes: that may have something of it.
        """
        known = self._catalog.deployment(query)
        if known is None:
            known = self._catalog.deployments[query] = Deployment(
                query=query,
                nodes=tuple(dict.fromkeys((*nodes, self._catalog.node))),
                state=RUNNING,
                client=self._catalog.node,
                request=0,
                streams=(),
                taken_over=True,
            )
        if known.state == REMOVING:
            return
        if query in self._catalog.owners:
            self._catalog.owners[query] = self._catalog.node  # What is here obeys us.
        if self.unfinished is not None:
            self.unfinished.drop(query)
        attempt = self._attempts.pop(query, None)
        self._begin_removal(now_us, known, _E.REMOVE)
        if attempt is not None:
            self._answer(attempt.client, undeployed(attempt.request, query), after=self._saver.save())

    # --- what nodes answer ----------------------------------------------------------------------

    def reply(self, now_us: int, node: str, reply: Reply) -> None:
        """A node answered one of our questions; other answers are dropped and counted."""
        found = self._questions.get(reply.request, node)
        if found is None:
            self.stale += 1
            return
        question = found.order
        attempt = self._attempts.get(question.query)
        if reply.code == CONTENDED and attempt is not None and now_us < attempt.contended_until_us:
            found.said(now_us + CONTENDED_AGAIN_US - AGAIN_US)
            return
        self._questions.close(found)
        deployment = self._catalog.deployment(question.query)
        if deployment is None:
            return
        if isinstance(question.message, BEGINS):
            if attempt is None or deployment.state != DEPLOYING:
                if reply.code and deployment.state == RUNNING:
                    about = {"fragment": question.message.fragment, "node": node, "code": reply.code}
                    self._report(deployment, "error", "not installed again", **about, why=reply.text)
                return
            attempt.installs.pop(reply.request, None)
            if node in self._forgetful and question.payload is not None and not reply.code:
                deployment.install_again_at(node, question.message.fragment, question.payload)
            if reply.code:
                kept = self._catalog.configuration(deployment.query)
                # A configuration that doesn't say who has parts is told by us alone: its node waits for us.
                if attempt.refused_by(node) and (kept is None or kept.current.parts is not None):
                    deployment.has_no_part_at(node)
                self._undo(now_us, deployment, attempt, from_node(reply, node))
                return
            attempt.has.add(node)
            if not attempt.installs and (other := self.outranks(deployment.query)):
                # Both began before either had heard of the other. Nobody was told yet that ours runs.
                self._undo(
                    now_us, deployment, attempt, there_already(attempt.request, deployment.query, other)
                )
            elif not attempt.installs:
                deployment.step(_E.INSTALLED)
                del self._attempts[deployment.query]
                self._answer(attempt.client, Reply(request=attempt.request), after=self._saver.save())
            elif node != self._catalog.node:
                self._install_own(now_us, attempt)
        elif not self._open(deployment.query):
            self._removed(deployment)

    def has_parts(self, now_us: int, node: str, reply: Reply) -> bool:
        """A node answered whether it has its parts of a query that was taken over; whether it was that."""
        answered = self._succeeded.answered(node, reply)
        if answered:
            self._remove_incomplete(now_us)
        return answered

    def came_up(self, now_us: int, node: str, *, forgets: bool) -> None:
        """A node is there; one that forgets over its end is told again what it runs."""
        if not forgets:
            self._forgetful.discard(node)
            return
        self._forgetful.add(node)
        for deployment in self._catalog.deployments.values():
            if deployment.state == REMOVING:
                continue
            ended = [each[:2] for each in deployment.ended]
            for of, fragment, payload in deployment.forgetful:
                if (fragment, of) in ended:
                    continue
                asked = (each.order.message for each in self._questions if each.to == node)
                if of != node or any(isinstance(m, Install) and m.fragment == fragment for m in asked):
                    continue
                self._install_again(now_us, deployment.query, node, fragment, payload)

    def _install_again(self, now_us: int, query: str, node: str, fragment: str, payload: bytes) -> None:
        self._request += 1
        question = DeploymentQuestion(
            query=query,
            message=self._of_life(Install(request=self._request, query=query, fragment=fragment)),
            payload=payload,
            after=0,
        )
        self._ask(self._questions.open(now_us, self._request, node, question))

    def _undo(self, now_us: int, deployment: Deployment, attempt: DeploymentAttempt, why: Reply) -> None:
        """All or nothing: what this attempt installed goes, nothing older; the client hears why."""
        code = "E_DEPLOYED" if why.code == CONTENDED else why.code
        reply = Reply(request=attempt.request, code=code, text=why.text, hint=why.hint)
        del self._attempts[deployment.query]
        self._begin_removal(now_us, deployment, _E.UNDO)
        self._answer(attempt.client, reply, after=self._saver.save())  # Or a later life would go on with it.

    def _begin_removal(self, now_us: int, deployment: Deployment, event: DeploymentEvent) -> None:
        query = deployment.query
        self._drop_questions(query)
        self._succeeded.forget(query)
        ran = deployment.state == RUNNING
        deployment.step(event)
        kept = self._catalog.configuration(query)
        if kept is not None:
            deployment.is_of_life(kept.current.life)
        if kept is not None and kept.current.parts is not None:
            # Who had the coordinator's role, say, may have no other part.
            others = (node for node in kept.current.nodes() if node != self._catalog.node)
            # Where it hasn't run yet, a node may have a part and no configuration.
            deployment.reaches(others, lets_go=ran)
        over = self._unguarded(query)
        token = self._saver.save()
        for node in deployment.nodes:
            self._request += 1
            message = Remove(request=self._request, query=query, since=deployment.began, life=deployment.life)
            question = DeploymentQuestion(query=query, message=message, payload=None, after=token)
            made = self._questions.open(now_us, self._request, node, question)
            if node != self._catalog.node:
                self._ask(made)
        for each in list(self._questions):
            if each.order.query == query and each.to == self._catalog.node:
                assert isinstance(each.order.message, Remove)
                self.reply(now_us, each.to, self._remove(each.order.message, over))

    def _drop_questions(self, query: str) -> None:
        self._questions.forget(lambda question: question.query == query)
        self._saver.drop(lambda message: isinstance(message, BEGINS) and message.query == query)

    def _let_go(self, query: str) -> bool:
        """Whether the removal of a query waits only for nodes that needn't be waited for: each has refused
        all of it, or knows the query's configuration, asks about it when it is back, and hears that the query
        was removed. A machine that is lost for good holds nothing up."""
        deployment = self._catalog.deployment(query)
        asked = [each.to for each in self._questions if each.order.query == query]
        if deployment is None or any(map(self._is_up, asked)):
            return False
        if not (deployment.lets_go or all(node in deployment.refused for node in asked)):
            return False
        self._drop_questions(query)
        return True

    def _removed(self, deployment: Deployment) -> None:
        self._catalog.undeployed(deployment.query)
        token = self._saver.save()
        attempt = self._attempts.pop(deployment.query, None)
        if attempt is not None:
            self._answered[attempt.client, attempt.request] = token
            if len(self._answered) > ANSWERED_MAX:
                del self._answered[next(iter(self._answered))]
            self._answer(attempt.client, Reply(request=attempt.request), after=token)

    def _open(self, query: str) -> bool:
        return any(each.order.query == query for each in self._questions)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Ask again; give up what took too long."""
        self._look(now_us)
        self._judge(now_us)
        self._succeeded.tick(now_us)
        self._remove_incomplete(now_us)
        for query, attempt in list(self._attempts.items()):
            if now_us < attempt.deadline_us:
                continue
            deployment = self._catalog.deployments[query]
            me = self._catalog.node
            nodes = [each.to for each in self._questions if each.order.query == query and each.to != me]
            nodes = nodes or [node for node in deployment.nodes if node != me]
            if waits := self.unfinished is not None and self.unfinished.waits(query):
                nodes = self.unfinished.away(deployment)
            why = silent(attempt.request, query, deployment.state, nodes, self._timeout_us, waits)
            if deployment.state == DEPLOYING and not waits:
                self._undo(now_us, deployment, attempt, why)
            else:
                # The removal goes on, and what is half done waits; only the client does so no more.
                del self._attempts[query]
                self._answer(attempt.client, why)
        for each in self._questions.due(now_us):
            each.said(now_us)
            query, fragment = each.order.query, each.order.fragment
            if self._let_go(query):
                self._removed(self._catalog.deployments[query])
            elif each.to != self._catalog.node:
                self._ask(each)
            elif fragment is not None:  # Contended here.
                self._install_here(now_us, each.number, fragment)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        parts = (self._questions, self.unfinished, self._succeeded)
        known = (None if each is None else each.wake_at_us() for each in parts)
        times = [attempt.deadline_us for attempt in self._attempts.values()]
        times += [self._look_at_us] if self._waiting else []
        return min((*times, *(each for each in known if each is not None)), default=None)

    def _report(self, deployment: Deployment, level: str, what: str, **about: str) -> None:
        with self._outbox.caused_by(deployment.client, deployment.request):
            self._outbox.report(level, what, **about)

    def _ask(self, each: Request[DeploymentQuestion]) -> None:
        question = each.order
        self._saver.send(each.to, question.message, question.payload, after=question.after)

    def _answer(self, client: str, reply: Reply, after: int | None = None) -> None:
        if after is None:
            self._outbox.send(client, reply)
        else:
            self._answers.wait(client, reply.request, after)
            self._saver.send(client, reply, after=after)
