"""``headrace completion SHELL``: the script by which a shell completes commands and options."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

app = App(name="completion", help="Print what makes a shell complete words of headrace.")


@app.default
def completion_command(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion script of a shell; it is made from the commands of this version.

    bash: headrace completion bash > ~/.local/share/bash-completion/completions/headrace.
    zsh: headrace completion zsh > "${fpath[1]}/_headrace".
    fish: headrace completion fish > ~/.config/fish/completions/headrace.fish.

    Parameters
    ----------
    shell
        Which shell.
    """
    from headrace.cli.app import root

    print(root().generate_completion(prog_name="headrace", shell=shell))
