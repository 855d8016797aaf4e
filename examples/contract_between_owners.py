"""Two owners agree on a contract over a network that loses messages; what they trade is no stream.

A studio has pictures to render, a farm has machines at night. Each has a desk: it signs, checks what the
other signed, says again what got lost, and ends what nobody answers.
"""

from __future__ import annotations

import random

from medusa.errors import ContractError
from medusa.market.contract.desk import ContractDesk
from medusa.market.contract.register import ContractRegister
from medusa.market.contract.terms import Contract, TaskTerms
from medusa.market.money import money_text
from medusa.market.work import NANO, price_of_work
from medusa.runtime.keys.key_files import ParticipantKey, verifier

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
LOST = 0.6  # of all messages

TERMS = Contract(
    id="nights",
    provider="farm",
    consumer="studio",
    begins_us=DAY,
    ends_us=30 * DAY,
    price_micro=50,
    units_per_s_max_milli=64_000,
    tasks=TaskTerms(definitions=("render",)),
    notice_s=86_400,
)


def main() -> None:
    signers = {name: ParticipantKey(name.encode().ljust(32, b"-")) for name in ("farm", "studio")}
    keys = {name: signer.key for name, signer in signers.items()}
    registers = {name: ContractRegister(name) for name in signers}
    desks = {
        name: ContractDesk(
            name, federation="guild", signer=signer, verify=verifier(), keys=keys, register=registers[name]
        )
        for name, signer in signers.items()
    }
    chance, now_us, lost = random.Random(4), 0, 0

    desks["studio"].propose(now_us, TERMS, within_us=HOUR)
    accepted = False
    while not (registers["farm"].partners(DAY) and registers["studio"].partners(DAY)):
        for name, desk in desks.items():
            desk.tick(now_us)
            for letter in desk.take():
                if chance.random() < LOST:
                    lost += 1
                    continue
                desks[letter.partner].receive(now_us, name, letter.message)
                print(f"{now_us // SECOND:3} s  {name} to {letter.partner}: {type(letter.message).__name__}")
        if not accepted and desks["farm"].status():
            accepted = True
            desks["farm"].accept(now_us, "studio", "nights")
        now_us += SECOND
    print(f"both have both signatures; {lost} messages were lost")

    for day in (0.5, 12):
        counts = registers["studio"].in_force(int(day * DAY))
        print(f"on day {day:g} {len(counts)} contract counts")
    owed, _ = price_of_work(40 * 3_600 * NANO, TERMS.price_micro)
    print(f"40 core-hours of rendering cost {money_text(owed, TERMS.currency)}")

    ends_us = desks["farm"].revoke(12 * DAY, "studio", "nights", "machines are sold")
    print(f"the farm revokes on day 12: it counts until day {ends_us / DAY:g}")
    try:
        registers["farm"].get("studio", "nights", ends_us)
    except ContractError as error:
        print(error.message)


if __name__ == "__main__":
    main()
