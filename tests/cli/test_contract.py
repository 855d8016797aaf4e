"""``medusa contract``: two companies draft, sign, look at and end a contract, as files."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.market.contract.signed import RevocationDocument, document_to_text, sign_document
from medusa.runtime.contracts.contract_files import read_signed, write_signed
from medusa.runtime.keys.key_files import read_participant_key
from tests.blocks import blocks

SIGNS = {name: ("--signer", f"{name}.key", "--participant", name) for name in ("acme", "bigco", "carol")}
IN = ("--federation", "netmon")
KEYS = ("--provider-key", "acme.pub", "--consumer-key", "bigco.pub")


def run(*arguments, code=0) -> str:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With keys of three participants, and terms that count from the day before this one."""
    monkeypatch.chdir(tmp_path)
    for name in SIGNS:
        run("keygen", "participant", f"{name}.key")
    text = run("contract", "draft", "--provider", "acme", "--consumer", "bigco", "--price", "0.02")
    (tmp_path / "terms.toml").write_text(re.sub("begins = .*?Z", "begins = 2026-01-01", text))
    return tmp_path


def offered(*more) -> None:
    run("contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "a.contract", *more)


def accepted() -> None:
    offered()
    run("contract", "accept", "a.contract", *SIGNS["acme"], *IN, "--partner-key", "bigco.pub")


def shown(*more) -> dict:
    return json.loads(run("contract", "show", "a.contract", *more, "--json"))


def test_two_sign_and_then_it_counts(folder):
    said = run("contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "a.contract")
    assert "it counts once acme has signed it too, within 30d" in said
    assert (shown(*KEYS)["counts"], shown(*KEYS)["why"]) == (False, "acme hasn't signed")
    text = run("contract", "show", "a.contract")
    assert "provider    acme: not signed" in text
    assert "counts now  no: acme hasn't signed" in text
    assert 'amount = "0.02"' in text
    said = run("contract", "accept", "a.contract", *SIGNS["acme"], *IN, "--partner-key", "bigco.pub")
    assert "signed by both: a.contract" in said
    found = shown(*KEYS)
    assert found["counts"]
    assert found["signed"]["provider"]["compared"]
    assert found["terms"] == text[: text.index("\nfederation")]
    before = (folder / "a.contract").read_bytes()
    run("contract", "accept", "a.contract", *SIGNS["acme"], *IN, "--partner-key", "bigco.pub")
    assert (folder / "a.contract").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_keys_that_were_not_compared_count_for_nothing(folder):
    accepted()
    found = shown("--provider-key", "acme.pub")
    assert not found["counts"]
    assert found["why"] == "nobody has said that the key that signed for bigco is theirs"
    assert "was not compared" in run("contract", "show", "a.contract")


def test_the_provider_may_propose_too_and_keys_may_be_text(folder):
    run("contract", "propose", "terms.toml", *SIGNS["acme"], *IN, "-o", "a.contract")
    key = re.search(r"ed25519:\w+", (folder / "acme.pub").read_text())[0]
    told = json.loads(
        run(
            "contract",
            "accept",
            "a.contract",
            *SIGNS["bigco"],
            *IN,
            "--partner-key",
            key,
            "-o",
            "b",
            "--json",
        )
    )
    assert told == {"contract": "bigco-at-acme", "version": 1, "file": "b"}
    assert read_signed(folder / "a.contract")[0].consumer is None
    assert read_signed(folder / "b")[0].consumer is not None


def test_a_revocation_ends_it_after_its_notice(folder):
    accepted()
    said = run(
        *("contract", "revoke", "a.contract", *SIGNS["acme"]),
        *("--reason", "we move out\x1b[2J", "-o", "a.revoked"),
    )
    assert "give it to bigco" in said
    text = run("contract", "show", "a.revoked")
    assert "acme revokes contract bigco-at-acme, all versions up to 1" in text
    assert 'reason      "we move out\\u001b[2J"' in text
    found = shown(*KEYS, "--revoked", "a.revoked")
    assert found["counts"]
    assert re.fullmatch(r"for (7d|6d 23h 59 min \d+s) more", found["why"])
    assert found["revoked"]["by"] == "acme"
    text = run("contract", "show", "a.contract", *KEYS, "--revoked", "a.revoked")
    assert re.search(r'^revoked     by acme, from .* on: "we move out\\u001b\[2J"$', text, re.M)
    assert "\nrevoked" not in run("contract", "show", "a.contract", *KEYS)
    told = json.loads(run("contract", "show", "a.revoked", *KEYS, "--json"))
    assert (told["by"], told["reason"], told["compared"]) == ("acme", "we move out\x1b[2J", True)


def test_a_contract_without_notice_ends_at_once(folder):
    text = (folder / "terms.toml").read_text()
    (folder / "terms.toml").write_text(re.sub("notice.*", "", text))
    accepted()
    run("contract", "revoke", "a.contract", *SIGNS["bigco"], "-o", "a.revoked")
    found = shown(*KEYS, "--revoked", "a.revoked")
    assert (found["counts"], found["why"]) == (False, "bigco has revoked it, 0s ago")


@pytest.mark.parametrize(
    ("line", "place", "says"),
    [
        ('range = "0.03"', "line 10: price.range", "expected at most the price of 0.02 EUR, got 0.03 EUR"),
        ('amount = "-0.02"', "line 9: price.amount", "0 or more"),
        ("ends = 2026-11-01", "", "ended"),
        ('consumer = "acme"', "line 3: consumer", "for both"),
    ],
)
def test_what_contradicts_itself_is_not_signed(folder, line, place, says):
    text = (folder / "terms.toml").read_text()
    name = line.split(" = ")[0]
    text = re.sub(f"^{name} = .*$", line, text, flags=re.MULTILINE)
    if name == "range":
        text = text.replace('amount = "0.02"', f'amount = "0.02"\n{line}')
    (folder / "terms.toml").write_text(text)
    said = run("contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "a.contract", code=1)
    assert says in said
    assert place in said
    assert "hint: " in said
    assert not (folder / "a.contract").exists()


def test_what_can_not_be_accepted_changes_nothing(folder):
    offered()
    before = (folder / "a.contract").read_bytes()
    accept = ("contract", "accept", "a.contract")
    partner = ("--partner-key", "bigco.pub")
    for arguments, says in [
        ((*SIGNS["acme"], "--federation", "other", *partner), "is of federation 'netmon', this is 'other'"),
        ((*SIGNS["acme"], *IN, "--partner-key", "carol.pub"), "is signed for 'bigco' by ed25519:"),
        ((*SIGNS["carol"], *IN, *partner), "is between 'acme' and 'bigco'"),
        ((*SIGNS["bigco"], *IN, "--partner-key", "acme.pub"), "'acme' hasn't signed"),
        (("--signer", "bigco.pub", "--participant", "acme", *IN, *partner), "this needs the secret one"),
        (("--signer", "bigco.key", "--participant", "acme", *IN, *partner), "are the same key"),
    ]:
        assert says in run(*accept, *arguments, code=1)
        assert (folder / "a.contract").read_bytes() == before
    run("contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "late", "--open", "1us")
    late = ("contract", "accept", "late", *SIGNS["acme"], *IN, *partner)
    assert "hint: ask for a new one" in run(*late, code=1)
    assert "never written over" in run(
        "contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "a.contract", code=1
    )
    assert "is no party" in run("contract", "propose", "terms.toml", *SIGNS["carol"], *IN, "-o", "x", code=1)
    assert not (folder / "x").exists()


NONE = "no signed contract in this text: "


def changed_document(folder, change) -> None:
    """What was signed by both, with something else in it."""
    signed, _ = read_signed(folder / "a.contract")
    plain = msgspec.msgpack.decode(signed.document)
    change(plain)
    data = msgspec.structs.replace(signed, document=msgspec.msgpack.encode(plain))
    (folder / "a.contract").write_text(document_to_text(data))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plain: plain[2].update(price_micro=1), "range"),
        (
            lambda plain: plain[2].update(price_micro="1"),
            "a.contract: no document: contract.price_micro: Expected",
        ),
        (lambda plain: plain[2].update(prize_micro=1), "unknown field `prize_micro`"),
        (lambda plain: plain.__setitem__(3, "Net Mon"), "a.contract: no document: federation: Expected"),
        (lambda plain: plain.__setitem__(1, -1), "a.contract: no document: until_us: Expected"),
    ],
)
def test_terms_that_nobody_signed_are_told_with_their_field(folder, change, says):
    text = (folder / "terms.toml").read_text()
    (folder / "terms.toml").write_text(text.replace('amount = "0.02"', 'amount = "0.02"\nrange = "0.01"'))
    accepted()
    changed_document(folder, change)
    said = run("contract", "show", "a.contract", *KEYS, code=1)
    assert says in said
    assert "hint: it was changed or cut short after it was signed" in said


def test_it_is_told_whether_terms_or_a_signature_were_changed(folder):
    accepted()
    changed_document(folder, lambda plain: plain[2].update(price_micro=10_000_000))
    said = run("contract", "show", "a.contract", *KEYS, code=1)
    assert "not that of 'acme': what was signed has other bytes, so terms in this file were changed" in said
    assert "hint: ask 'acme' for the file that they signed" in said
    (folder / "a.contract").unlink()
    accepted()
    signed, _ = read_signed(folder / "a.contract")
    wrong = msgspec.structs.replace(signed.consumer, signature=bytes(64))
    (folder / "a.contract").write_text(document_to_text(msgspec.structs.replace(signed, consumer=wrong)))
    said = run("contract", "show", "a.contract", *KEYS, code=1)
    assert (
        "not that of 'bigco': what was signed has other bytes, so it was changed after 'bigco' signed" in said
    )


def test_a_wrong_key_is_told_with_its_option(folder):
    accepted()
    acme, bigco, carol = (
        re.search(r"ed25519:\w+", (folder / f"{name}.pub").read_text())[0]
        for name in ("acme", "bigco", "carol")
    )
    said = run("contract", "show", "a.contract", "--provider-key", "carol.pub", code=1)
    assert f"is signed for 'acme' by {acme}, --provider-key is {carol}" in said
    assert (
        "hint: ask 'acme', not over the same way, which key is theirs; if that one, another has signed"
        in said
    )
    said = run("contract", "show", "a.contract", "--provider-key", "bigco.pub", code=1)
    assert f"is signed for 'acme' by {acme}, --provider-key is {bigco}" in said
    assert "hint: with that one 'bigco' has signed: --provider-key is the key of 'acme'" in said
    revoke = ("contract", "revoke", "a.contract", "-o", "r", "--signer", "carol.key", "--participant", "acme")
    assert f"is signed for 'acme' by {acme}, --signer is {carol}" in run(*revoke, code=1)


def test_a_changed_file_is_noticed(folder):
    accepted()
    lines = (folder / "a.contract").read_text().split("\n")
    for number in range(1, len(lines) - 2):
        changed = lines.copy()
        changed[number] = ("B" if lines[number][0] == "A" else "A") + lines[number][1:]
        (folder / "a.contract").write_text("\n".join(changed))
        assert "error: " in run("contract", "show", "a.contract", *KEYS, code=1)
    text = "\n".join(lines)
    for changed, says in [
        ("\n".join([*lines[:2], "*", *lines[3:]]), "no signed contract in this text: line 3 is no base64"),
        (text.replace("-----END", "---END"), "its last line, -----END MEDUSA CONTRACT-----, is missing"),
        ("\n".join(lines[:-2]), "its last line, -----END MEDUSA CONTRACT-----, is missing"),
    ]:
        (folder / "a.contract").write_text(changed)
        said = run("contract", "show", "a.contract", code=1)
        assert f"error: a.contract: no signed contract in this text: {says.removeprefix(NONE)}" in said
        assert "hint: it was changed or cut short after it was signed: have it sent again" in said
    (folder / "a.contract").write_text("hello")
    assert "no signed contract" in run("contract", "show", "a.contract", code=1)
    (folder / "a.contract").write_bytes(b"\xff")
    assert "is no text" in run("contract", "show", "a.contract", code=1)


def test_a_later_version_replaces_what_both_signed(folder):
    accepted()
    text = (folder / "terms.toml").read_text()
    propose = ("contract", "propose", "terms.toml", *SIGNS["bigco"], *IN, "-o", "b.contract")
    accept = ("contract", "accept", "b.contract", *SIGNS["acme"], *IN, "--partner-key", "bigco.pub")
    second = f"version = 2\n{text}".replace("2026-01-01", "2026-01-02")
    dollars = second.replace("[price]", '[price]\ncurrency = "USD"')
    for changed, says in [
        (text, "write version 2"),
        (second.replace('"acme"', '"carol"'), "parties: ('carol', 'bigco')"),
        (second.replace("bigco-at-acme", "other"), "id: 'other', and 'bigco-at-acme'"),
        (dollars, "currency: 'USD' in version 2"),
        (f"version = 2\n{text}", "begins together with version 1"),
        (second.replace("2026-01-02", "2025-12-31"), "begins 1d before version 1"),
    ]:
        (folder / "terms.toml").write_text(changed)
        assert says in run(*propose, "--replaces", "a.contract", code=1)
    (folder / "terms.toml").write_text(second.replace("0.02", "0.03"))
    run(*propose, "--replaces", "a.contract")
    (folder / "terms.toml").write_text(f"version = 3\n{text}".replace("2026-01-01", "2026-01-03"))
    third = (*propose[:-1], "c.contract")
    assert "isn't signed by both" in run(*third, "--replaces", "b.contract", code=1)
    run(*accept, "--replaces", "a.contract")
    run(*third, "--replaces", "b.contract")


def second_version(folder, begins: str) -> None:
    text = (folder / "terms.toml").read_text()
    (folder / "two.toml").write_text("version = 2\n" + re.sub("begins = .*", f"begins = {begins}", text))
    run(
        "contract",
        "propose",
        "two.toml",
        *SIGNS["bigco"],
        *IN,
        "-o",
        "b.contract",
        "--replaces",
        "a.contract",
    )
    accept = ("contract", "accept", "b.contract", *SIGNS["acme"], *IN, "--partner-key", "bigco.pub")
    run(*accept, "--replaces", "a.contract")


def test_a_version_that_was_replaced_counts_no_more(folder):
    accepted()
    second_version(folder, "2026-01-02")
    found = shown(*KEYS)
    assert not found["counts"]
    assert re.fullmatch(r"version 2 does, since \d+d.*", found["why"])
    assert "counts now  no: version 2 does, since " in run("contract", "show", "a.contract", *KEYS)
    assert json.loads(run("contract", "show", "b.contract", *KEYS, "--json"))["counts"]
    # Elsewhere it has to be named.
    (folder / "b.contract").rename(folder / "b.signed")
    assert shown(*KEYS)["counts"]
    assert not shown(*KEYS, "--newer", "b.signed")["counts"]


def test_a_version_counts_until_the_next_one_begins(folder):
    accepted()
    in_ten_days = datetime.now(UTC).date() + timedelta(days=10)
    second_version(folder, f"{in_ten_days}T00:00:00Z")
    found = shown(*KEYS)
    assert found["counts"]
    assert re.fullmatch(r"for (9d .*|10d) more", found["why"])


def test_only_a_later_version_that_both_signed_takes_the_place(folder):
    accepted()
    second_version(folder, "2026-01-02")
    run("contract", "propose", "two.toml", *SIGNS["bigco"], *IN, "-o", "b.offer")
    (folder / "b.contract").write_text((folder / "b.offer").read_text())
    (folder / "c.contract").write_text("hello")
    assert shown(*KEYS)["counts"]
    assert "'acme' hasn't signed" in run(
        "contract", "show", "a.contract", *KEYS, "--newer", "b.offer", code=1
    )
    assert "no signed contract" in run("contract", "show", "a.contract", "--newer", "c.contract", code=1)
    assert "write version 2" in run("contract", "show", "a.contract", *KEYS, "--newer", "a.contract", code=1)


def drafted_terms(*more, code=0) -> str:
    parties = ("--provider", "acme", "--consumer", "bigco", "--price", "0.02")
    return run("contract", "draft", *parties, *more, code=code)


def test_a_draft_counts_from_now_on_or_as_it_is_told(folder):
    now = datetime.now(UTC)
    terms = tomllib.loads(drafted_terms())
    assert (
        timedelta(0) <= datetime.now(UTC) - terms["begins"] < timedelta(minutes=2) + (datetime.now(UTC) - now)
    )
    assert terms["ends"] - terms["begins"] == timedelta(days=365)
    assert terms["notice"] == "7d"
    terms = tomllib.loads(drafted_terms("--begins", "2999-12-01", "--ends", "2999-12-03T08:00:00+01:00"))
    assert terms["begins"] == datetime(2999, 12, 1, tzinfo=UTC)
    assert terms["ends"] == datetime(2999, 12, 3, 7, tzinfo=UTC)
    assert "notice" not in terms
    terms = tomllib.loads(drafted_terms("--begins", "2999-12-01T00:00:00Z", "--period", "30d"))
    assert terms["ends"] == datetime(2999, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--begins", "soon"), "--begins: expected a date, or a time with its zone, after 1970, got 'soon'"),
        (
            ("--begins", "2999-12-01T08:00:00"),
            "hint: write --begins 2026-12-01 (its midnight, UTC) or --begins",
        ),
        (("--ends", "1969-12-01"), "--ends: expected a date, or a time with its zone, after 1970"),
        (("--ends", "2026-01-01"), "--ends: expected an end after now, 20"),
        (
            ("--begins", "2999-12-02", "--ends", "2999-12-01"),
            "after its begin, 2999-12-02T00:00:00Z, got 2999-12-01",
        ),
        (("--begins", "2020-01-01", "--period", "1d"), "--period: expected an end after now, 20"),
    ],
)
def test_a_draft_of_another_time_is_refused(folder, given, says):
    said = drafted_terms(*given, code=1)
    assert says in said
    assert "hint: " in said


def test_an_end_is_said_once(folder):
    said = drafted_terms("--ends", "2999-12-01", "--period", "1d", code=2)
    assert "--ends and --period both say when it ends: give one of them" in said


def test_what_can_not_be_revoked(folder):
    offered()
    revoke = ("contract", "revoke", "a.contract", "-o", "r")
    assert "isn't signed by both" in run(*revoke, *SIGNS["acme"], code=1)
    (folder / "a.contract").unlink()
    accepted()
    assert "is between 'acme' and 'bigco'" in run(*revoke, *SIGNS["carol"], code=1)
    assert "is signed for 'acme' by" in run(*revoke, "--signer", "carol.key", "--participant", "acme", code=1)
    run(*revoke, *SIGNS["acme"])
    assert "this is the revocation" in run("contract", "revoke", "r", "-o", "s", *SIGNS["acme"], code=1)
    assert "this is the revocation" in run(
        "contract", "accept", "r", *SIGNS["bigco"], *IN, "--partner-key", "acme.pub", code=1
    )
    assert "is no revocation" in run("contract", "show", "a.contract", "--revoked", "a.contract", code=1)
    text = (
        (folder / "terms.toml").read_text().replace("version = 1\n", "").replace('= "bigco-at', '= "other-at')
    )
    (folder / "terms.toml").write_text(text)
    (folder / "a.contract").unlink()
    accepted()
    assert "is of another contract" in run("contract", "show", "a.contract", *KEYS, "--revoked", "r", code=1)


# --- contracts about content ----------------------------------------------------------------------


@pytest.fixture
def query(folder):
    q = md.Query("clicks")
    rows = q.source("rows", {"ts": "timestamp", "user": "int32", "page": "utf8"})
    q.sink("out", rows.filter("user > 0"))
    (folder / "clicks.json").write_text(q.to_json())
    return folder / "clicks.json"


def drafted(folder, *more) -> str:
    parties = ("--provider", "acme", "--consumer", "bigco", "--price", "5", "--per", "gigabyte")
    text = run("contract", "draft", "--query", "clicks.json", *parties, *more)
    begun = re.sub(r"begins: '\d+-\d+-\d+", "begins: '2026-01-01", text)
    (folder / "c.odcs.yaml").write_text(begun)
    return begun


def test_rows_of_a_sink_are_sold_by_a_file_of_the_standard(folder, query):
    text = drafted(folder)
    run("contract", "propose", "c.odcs.yaml", *SIGNS["acme"], *IN, "-o", "a.contract")
    run("contract", "accept", "a.contract", *SIGNS["bigco"], *IN, "--partner-key", "acme.pub")
    found = shown(*KEYS)
    assert found["counts"]
    assert yaml.safe_load(found["terms"]) == yaml.safe_load(text)
    q = md.Query("q")
    (folder / "signed.odcs.yaml").write_text(found["terms"])
    source = q.source("clicks", contract="signed.odcs.yaml")
    assert source.schema == {"ts": "timestamp[us, UTC]", "user": "int32", "page": "utf8"}
    run("contract", "revoke", "a.contract", *SIGNS["bigco"], "-o", "a.revoked")
    assert re.fullmatch(r"for (7d|6d 23h 59 min \d+s) more", shown(*KEYS, "--revoked", "a.revoked")["why"])


def test_a_revocation_of_rows_keeps_the_notice_too(folder, query):
    drafted(folder)
    run("contract", "propose", "c.odcs.yaml", *SIGNS["acme"], *IN, "-o", "a.contract")
    run("contract", "accept", "a.contract", *SIGNS["bigco"], *IN, "--partner-key", "acme.pub")
    document = read_signed(folder / "a.contract")[1]
    hasty = RevocationDocument(
        federation="netmon",
        id=document.id,
        version=1,
        provider="acme",
        consumer="bigco",
        by="acme",
        said_us=document.begins_us,
        ends_us=document.begins_us + 1,
    )
    write_signed(folder / "r", sign_document(hasty, read_participant_key("acme.key"), "acme"))
    said = run("contract", "show", "a.contract", *KEYS, "--revoked", "r", code=1)
    assert "expected a notice of 7d at least" in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--sink", "nothing"), "there is: out"),
        (("--per", "handshake"), "'handshake' isn't counted"),
        (("--price", "-5"), "expected a price of 0 or more, got -5.00 EUR"),
        (("--price", "much"), "an amount has at most"),
        (("--period", "soon"), "--period"),
    ],
)
def test_what_can_not_be_drafted(folder, query, more, says):
    parties = ("--provider", "acme", "--consumer", "bigco", "--price", "5")
    assert says in run("contract", "draft", "--query", "clicks.json", *parties, *more, code=1)


def test_what_can_not_be_kept_is_refused_by_name(folder, query):
    text = drafted(folder) + "roles:\n- role: reader\n"
    (folder / "c.odcs.yaml").write_text(text)
    said = run("contract", "propose", "c.odcs.yaml", *SIGNS["acme"], *IN, "-o", "a.contract", code=1)
    line = text[: text.index("roles:")].count("\n") + 1
    assert f"c.odcs.yaml line {line}: roles: can't be kept" in said
    assert not (folder / "a.contract").exists()


PAGE = Path(__file__).resolve().parents[2] / "docs" / "contracts.md"


def test_the_commands_of_the_page_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    q = md.Query("clicks")
    q.sink("out", q.source("rows", {"ts": "timestamp", "page": "utf8"}))
    (tmp_path / "clicks.json").write_text(q.to_json())
    (tmp_path / "november.receipts").write_text("")
    lines = [
        line
        for block in blocks(PAGE.read_text(encoding="utf-8"))
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "medusa"
        run(*words[1:])
    # Each tutorial has a contract of its own.
    ids = [read_signed(tmp_path / name)[1].id for name in ("offer.contract", "clicks.contract")]
    assert ids == ["bigco-at-acme", "bigco-from-acme"]
    assert {line.split()[2] for line in lines if " contract " in line} == {
        "draft",
        "propose",
        "accept",
        "show",
        "revoke",
        "statement",
    }
