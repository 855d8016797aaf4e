"""How one participant trades: times, margins, how much at once. None of it is agreed with anybody."""

from __future__ import annotations

from dataclasses import dataclass, fields

from medusa.errors import ContractError
from medusa.market.work import ResourceUse

__all__ = ["PPM", "TradeSettings"]

PPM = 1_000_000
"""Parts of a million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeSettings:
    """Each has a default that suits moves that take seconds.

    Attributes:
        capacity: of this machine, for load of others; nothing is taken beyond it. A resource that is 0
            isn't bounded. None: nothing is, but by cost.
        epsilon_ppm: by so much of the price a move has to be better than none (the prototype's epsilon,
            relative). Without it tasks go to and fro.
        round_us: so often a participant looks whether it wants to move something.
        gather_us: requests wait so long for others, so that the best paid is answered first.
        answer_us: a request is answered within this, or has failed.
        room_us: room that was agreed is kept so long for the task to come.
        again_us: what wasn't answered is said again after this.
        hold_us: a task that came is kept so long, unless capacity is exceeded; so is one that went.
        chain_us: a task that went to make room for another is kept so long, if the other doesn't come.
        patience_us: a guest that costs more than it earns is given back after this.
        heartbeat_us: a provider says its price at least so often; at most every ``round_us``.
        backoff_us, backoff_max_us: a contract under which was refused rests so long, doubled each time.
        memory_us: what a partner's price was is forgotten after this.
        price_steps: in so many steps the price rises to the top of its range where it is refused.
        tolerance_ppm: a guest may take so much more for a row than was said.
        settle_us: a guest is measured so long before it is judged.
        absent_us: a guest that isn't among the measured for so long is gone.
        offers_max, moves_max: open requests, and moves under way, at a time.
        tasks_max: of one request.
        decisions: so many are remembered for ``explain``.
    """

    capacity: ResourceUse | None = None
    epsilon_ppm: int = 20_000
    round_us: int = 1_000_000
    gather_us: int = 50_000
    answer_us: int = 2_000_000
    room_us: int = 30_000_000
    again_us: int = 700_000
    hold_us: int = 60_000_000
    chain_us: int = 10_000_000
    patience_us: int = 5_000_000
    heartbeat_us: int = 10_000_000
    backoff_us: int = 1_000_000
    backoff_max_us: int = 64_000_000
    memory_us: int = 120_000_000
    price_steps: int = 8
    tolerance_ppm: int = 200_000
    settle_us: int = 10_000_000
    absent_us: int = 30_000_000
    offers_max: int = 1
    moves_max: int = 1
    tasks_max: int = 100
    decisions: int = 256

    def __post_init__(self) -> None:
        """Raises ContractError: a number is below its least."""
        zero = ("epsilon_ppm", "gather_us", "hold_us", "patience_us", "tolerance_ppm", "settle_us")
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name in zero else 1
            if field.name == "capacity":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ContractError(
                    f"{field.name} is {value!r}: expected a whole number of at least {least}",
                    code="contract.settings",
                )
        if self.epsilon_ppm >= PPM:
            raise ContractError(
                f"epsilon_ppm is {self.epsilon_ppm}: expected less than {PPM}, else nothing is ever worth it",
                code="contract.settings",
            )
        if self.tasks_max > 1_000:
            raise ContractError(
                f"tasks_max is {self.tasks_max}: a message has at most 1,000 tasks", code="contract.settings"
            )

    def above(self, price_micro: int) -> float:
        """What a consumer saves for a unit has to be more than this."""
        return price_micro * (1 + self.epsilon_ppm / PPM)

    def below(self, price_micro: int) -> float:
        """What a unit costs a provider has to be less than this."""
        return price_micro * (1 - self.epsilon_ppm / PPM)
