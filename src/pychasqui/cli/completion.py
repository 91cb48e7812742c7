"""`chasqui completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_CHASQUI_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes in a shell.

    \b
    bash:  chasqui completion bash > ~/.local/share/bash-completion/completions/chasqui
    zsh:   chasqui completion zsh > a folder of your fpath, as _chasqui
    fish:  chasqui completion fish > ~/.config/fish/completions/chasqui.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "chasqui", VARIABLE)
    # Not source(), which runs bash to learn its version.
    click.echo(made.source_template % made.source_vars())
