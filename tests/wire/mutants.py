"""Mutated frames into the decoder, as a program: a crash of it is a finding, not the end of the tests.

Invariant: whatever the bytes, and at whatever address they lie, decoding gives a message and rows
that can be used in full, or a RemoteProtocolError. Nothing else comes out.

    python -m tests.wire.mutants SEED COUNT [every]

Each frame lies at one address offset; with ``every`` at each of the eight, and the outcome must be the same.
"""

from __future__ import annotations

import random
import sys
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from medusa.elements import Train
from medusa.errors import RemoteProtocolError
from medusa.query.boxes import Field
from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.links import Attached, Data, Hello
from tests.wire.test_codec import at_offset

SCHEMA = tuple(
    Field(name, type)
    for name, type in {
        "i": "int64",
        "small": "int8",
        "f": "float64",
        "flag": "bool",
        "s": "utf8",
        "raw": "binary",
        "day": "date32",
        "at": "timestamp[us, UTC]",
        "d": "decimal128(20, 4)",
    }.items()
)
CODEC = TrainCodec(SCHEMA, timed=True)
EDGES = [0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63]


def original(rng):
    """One valid frame: (header, payload)."""
    rows = rng.choice([1, 3, 17, 64])

    def column(field):
        values = [None if rng.random() < 0.2 else rng.randrange(100) for _ in range(rows)]
        if field.type == "utf8":
            values = [None if v is None else "ä" * v for v in values]
        elif field.type == "binary":
            values = [None if v is None else bytes(v) for v in values]
        elif field.type == "bool":
            values = [None if v is None else v > 50 for v in values]
        return pa.array(values, CODEC.schema.field(field.name).type)

    train = Train(
        batch=pa.record_batch([column(field) for field in SCHEMA], schema=CODEC.schema),
        times=pa.array(range(rows), pa.timestamp("us", tz="UTC")),
        late=pa.array([rng.random() < 0.5 for _ in range(rows)]) if rng.random() < 0.3 else None,
    )
    [(payload, count, late)] = CODEC.encode(train)
    message = Data(stream="s", epoch=1, frame=1, seq=0, rows=count, late=late)
    return bytes(encode_frame(message)[0]), bytes(payload)


def mutate(rng, data):
    """A few small wounds, most where structure is: near the start."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not data:
            break
        at = rng.randrange(len(data)) if rng.random() < 0.4 else rng.randrange(min(len(data), 700))
        kind = rng.choice([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 4, 5])
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            width = rng.choice([2, 4, 8])
            value = rng.choice(EDGES) & ((1 << 8 * width) - 1)
            data[at : at + width] = value.to_bytes(width, "little")
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at : at + rng.randrange(1, 16)]
        else:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 16)))
    return bytes(data)


def use(train):
    """Touch every value, as boxes would."""
    for column in train.batch.columns:
        if pa.types.is_temporal(column.type):
            # A date or time that Python can't name is a value like any other.
            column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        column.to_pylist()
        column.take(pa.array(range(len(column))))
        if not pa.types.is_decimal(column.type):
            pc.min_max(column)
    return len(train)


def one(rng, counts, *, every=False):
    header, payload = original(rng)
    if rng.random() < 0.3:
        other = [
            encode_frame(Hello(version=PROTOCOL_VERSION, node="n", incarnation=1))[0],
            encode_frame(Attached(stream="s", epoch=1, next_seq=0, boundary_us=0, schema=SCHEMA, timed=True))[
                0
            ],
        ]
        frames = [mutate(rng, bytes(rng.choice([header, *other])))]
        if rng.random() < 0.5:
            frames.append(payload)
    else:
        frames = [header, mutate(rng, payload)]
    offsets = range(8) if every else [rng.randrange(8)]
    outcomes = {outcome(frames, offset) for offset in offsets}
    assert len(outcomes) == 1, outcomes
    counts[outcomes.pop()] += 1


def outcome(frames, offset):
    """The code of the refusal, or ``taken``."""
    try:
        message, body = decode_frame([at_offset(part, offset) for part in frames])
        if isinstance(message, Data):
            use(CODEC.decode(message, body, boundary_us=0))
    except RemoteProtocolError as error:
        return error.code
    return "taken"


FORBIDDEN = ("exec", "compile", "import", "pickle.", "marshal.", "os.", "open", "socket.", "subprocess.")
FORBIDDEN += ("ctypes.dlopen", "code.__new__", "shutil.", "sqlite3.")
WARM = 60
"""Frames before which modules are still loaded, and things compiled, that every use needs."""


def nothing_runs(event, args):
    """An audit hook: what frames say is never run, loaded, or sent anywhere."""
    if event.startswith(FORBIDDEN) and event != "os.putenv":
        raise AssertionError(f"{event} {args!r:.200}")


def main():
    seed, count, every = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["every"]
    counts = Counter()
    for number in range(seed, seed + count):
        if number == seed + WARM:
            sys.addaudithook(nothing_runs)
        try:
            one(random.Random(number), counts, every=every)
        except BaseException:
            print(f"seed {number}", flush=True)
            raise
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    main()
