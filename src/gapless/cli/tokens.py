"""``gapless token``: tokens of clients and brokers."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import console, counted, listing, plain, print_json
from gapless.core.errors import UsageError, shortened

__all__ = ["token"]

token = typer.Typer(
    help="Make, list and remove tokens, which authenticate clients.", no_args_is_help=True
)

Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The owner of the token.")]
Tokens = Annotated[
    Path,
    typer.Option("--tokens", metavar="FILE", help="The file of digests that brokers read."),
]
_TOKENS = Path("tokens.toml")


@token.command("new")
def _new(
    context: typer.Context,
    principal: Principal,
    *,
    tokens: Tokens = _TOKENS,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default="PRINCIPAL.token",
            help="The file for the secret, readable only by its owner.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Until when it is valid: 2027-01-31 or 2027-01-31T09:30Z (default: local time).",
        ),
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="Also for retiring brokers and changing others' subscriptions."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token: the secret goes to a file of its own, its digest to the file of brokers.

    Running brokers read the change. A principal may have several tokens; remove the old one when
    the new one is in use.
    """
    from gapless.runtime.principals import TokenEntry, add_token, check_principal, write_secret
    from gapless.wire import digest_of, new_token

    settle(context, as_json=as_json)
    check_principal(principal)
    if out is None and "/" in principal:
        raise UsageError("this name cannot name a file: name one for the secret with --out")
    target = out or Path(f"{principal}.token")
    until = None if expires is None else _time(expires)
    secret = new_token()
    digest = digest_of(secret).hex()
    entry = TokenEntry(principal=principal, sha256=digest, expires=until, operator=operator)
    write_secret(target, secret)
    try:
        add_token(tokens, entry)
    except BaseException:
        target.unlink()
        raise
    if as_json:
        print_json({**_record(entry), "secret_in": str(target), "tokens": str(tokens)})
        return
    console().print(plain(f"the token of {principal} is in {target}, its digest in {tokens}"))


@token.command("broker")
def _broker(
    context: typer.Context,
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file for the secret.")
    ] = Path("broker.token"),
    as_json: AsJson = False,
) -> None:
    """Make the secret that all brokers of an overlay send each other; gapless up makes its own."""
    from gapless.runtime.principals import write_secret
    from gapless.wire import new_token

    settle(context, as_json=as_json)
    write_secret(out, new_token())
    if as_json:
        print_json({"secret_in": str(out)})
        return
    console().print(
        plain(f"the secret is in {out}: give it to every broker as access.broker_token")
    )


@token.command("ls")
def _ls(context: typer.Context, *, tokens: Tokens = _TOKENS, as_json: AsJson = False) -> None:
    """List principals and their tokens, without the secrets."""
    from gapless.runtime.principals import load_tokens

    settle(context, as_json=as_json)
    found = [_record(each) for each in load_tokens(tokens)]
    if as_json:
        print_json({"tokens": found})
        return
    rows = [
        (
            each["principal"],
            each["id"],
            each["expires"] or "never",
            "expired" if each["expired"] else "valid",
            "yes" if each["operator"] else "no",
        )
        for each in found
    ]
    console().print(listing("principal", "id", "expires", "now", "operator", rows=rows))


@token.command("rm")
def _rm(
    context: typer.Context,
    principal: Principal,
    *,
    identity: Annotated[
        str, typer.Option("--id", metavar="ID", help="Only the token with this id, see `ls`.")
    ] = "",
    tokens: Tokens = _TOKENS,
    as_json: AsJson = False,
) -> None:
    """Remove the tokens of a principal. Open connections continue until they end."""
    from gapless.runtime.principals import remove_tokens

    settle(context, as_json=as_json)
    removed = [_record(each) for each in remove_tokens(tokens, principal, identity)]
    if as_json:
        print_json({"removed": removed})
        return
    console().print(plain(f"{counted(len(removed), 'token')} of {principal} removed from {tokens}"))


def _record(entry: Any) -> dict[str, Any]:
    expires = None if entry.expires is None else entry.expires.isoformat()
    expired = entry.is_expired(dt.datetime.now(dt.UTC))
    return {
        "principal": entry.principal,
        "id": entry.id,
        "expires": expires,
        "expired": expired,
        "operator": entry.operator,
    }


def _time(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--expires {shortened(text)!r} is not a time: write 2027-01-31 or 2027-01-31T09:30Z"
        ) from None
    return found if found.tzinfo is not None else found.astimezone()
