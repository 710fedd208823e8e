"""Random events, filters and advertisements, with so few values that they overlap."""

from __future__ import annotations

from random import Random

from gapless.content.values import Value

__all__ = ["draw_advertisement", "draw_event", "draw_filter"]


def draw_event(random: Random, domain: int) -> dict[str, Value]:
    """Draw the attributes of an event; one is sometimes missing."""
    event: dict[str, Value] = {
        "kind": "abcdefgh"[random.randrange(domain)],
        "price": random.randrange(domain + 1),
    }
    if random.random() < 0.5:
        event["hot"] = random.random() < 0.5
    return event


def draw_filter(random: Random, domain: int) -> str:
    """Draw the text of a filter from a small set, so that equal ones recur."""
    kind = "abcdefgh"[random.randrange(domain)]
    other = "abcdefgh"[random.randrange(domain)]
    price = random.randrange(domain + 1)
    return random.choice(
        (
            "TRUE",
            f"kind = '{kind}'",
            f"kind <> '{kind}'",
            f"price = {price}",
            f"price < {price}",
            f"price >= {price}",
            f"kind = '{kind}' AND price >= {price}",
            f"kind = '{kind}' AND price < {price}",
            f"kind IN ('{kind}', '{other}')",
            f"kind = '{kind}' OR price = {price}",
            f"price BETWEEN {price} AND {price + 1}",
            "hot",
            f"NOT hot AND kind = '{kind}'",
            f"hot IS NULL AND price <= {price}",
        )
    )


def draw_advertisement(random: Random, domain: int) -> str:
    """Draw the advertisement of a pubend."""
    kind = "abcdefgh"[random.randrange(domain)]
    return random.choice(("TRUE", "TRUE", f"kind = '{kind}'", f"price < {domain}", "hot IS NULL"))
