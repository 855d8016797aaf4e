"""Price feeds: the volume-weighted price per symbol and minute, and alarms when a spread is wide.

Trades and quotes of three symbols are made up. A trade is compared with the quote that stood when it
was made, and a spread with those of the minute before.

Usage: python examples/price_feeds.py
"""

from __future__ import annotations

import random

import medusa as md

QUOTES = {"ms": "int64", "symbol": "utf8", "bid": "float64", "ask": "float64"}
TRADES = {"ms": "int64", "symbol": "utf8", "price": "float64", "shares": "int64"}


def query() -> md.Query:
    q = md.Query("prices")
    quotes = q.source("quotes", QUOTES, time="ms", unit="ms", slack="50ms")
    trades = q.source("trades", TRADES, time="ms", unit="ms", slack="50ms")
    vwap = (
        trades.window("1 min")
        .group_by("symbol")
        .aggregate(turnover=md.sum("price * shares"), shares=md.sum("shares"), trades=md.count())
        .with_columns(vwap="turnover / shares")
    )
    q.sink("vwap", vwap)
    spreads = quotes.with_columns(spread="(ask - bid) / bid * 10000")
    usual = spreads.window("1 min").group_by("symbol").aggregate(usual=md.median("spread"))
    wide = spreads.asof_join(usual.select("symbol", "usual"), on="symbol", within="2 min", how="inner")
    # One alarm a minute and symbol is enough.
    q.sink("alarms", wide.filter("spread > 4 * usual").distinct("symbol", within="1 min"))
    dear = trades.asof_join(quotes, on="symbol", within="5s").filter("price > ask")
    q.sink("above_ask", dear)
    return q


def feeds(seed: int = 3, minutes: int = 5) -> dict[str, dict[str, list[object]]]:
    """A random walk for each symbol; twice the spread of one opens for two seconds."""
    chance = random.Random(seed)
    middle = {"AAA": 100.0, "BBB": 40.0, "CCC": 250.0}
    quotes, trades = [], []
    for ms in range(0, minutes * 60_000, 250):
        for symbol in middle:
            middle[symbol] *= 1 + chance.gauss(0, 0.0001)
            jumps = symbol == "BBB" and ms % 150_000 in range(100_000, 102_000)
            half = middle[symbol] * (0.0005 if jumps else chance.uniform(0.00004, 0.00008))
            bid, ask = middle[symbol] - half, middle[symbol] + half
            quotes.append((ms, symbol, bid, ask))
            if chance.random() < 0.3:
                over = 0.01 if chance.random() < 0.01 else 0.0
                trades.append(
                    (ms + 10, symbol, chance.choice((bid, ask + over)), chance.randrange(1, 10) * 100)
                )
    return {
        "quotes": dict(zip(QUOTES, map(list, zip(*quotes, strict=True)), strict=True)),
        "trades": dict(zip(TRADES, map(list, zip(*trades, strict=True)), strict=True)),
    }


def main() -> None:
    out = md.collect(query(), **feeds())
    print("minute  symbol     vwap  trades")
    for row in out["vwap"].to_pylist():
        print("{window_start:%H:%M}   {symbol}     {vwap:8.3f}  {trades:6}".format(**row))
    for row in out["alarms"].to_pylist():
        print("wide spread: {symbol} at {ms} ms, {spread:.1f} bp where {usual:.1f} is usual".format(**row))
    print(f"{out['above_ask'].num_rows} trades above the ask")


if __name__ == "__main__":
    main()
