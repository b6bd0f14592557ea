"""Chat messages to one prompt, by the model's own Jinja2 template, in a sandbox.

The template comes with the weights, so it is data from elsewhere: it runs without access to
attributes, files or imports.
"""

from collections.abc import Mapping, Sequence

from longpole.errors import BadInput


class ChatTemplate:
    """A model's chat template, compiled once.

    Args:
        source: Jinja2 text.

    Raises:
        BadInput: the template does not compile.
    """

    def __init__(self, source: str) -> None:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise BadInput(f"the model's chat template does not compile: {error}") from error

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt for an answer to these messages (each with ``role`` and ``content``).

        Raises:
            BadInput: the template refuses the messages, e.g. for the order of their roles.
        """
        from jinja2 import TemplateError

        try:
            return self._template.render(messages=messages, add_generation_prompt=True)
        except TemplateError as error:
            raise BadInput(f"the model's chat template refuses the messages: {error}") from error


def _refuse(message: str) -> str:
    """What templates call to reject messages."""
    from jinja2 import TemplateError

    raise TemplateError(message)
