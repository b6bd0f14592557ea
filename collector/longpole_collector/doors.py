"""What the two OTLP doors and the API share: who comes in, and to which project."""

from typing import NamedTuple

from longpole_collector.health import Health
from longpole_collector.keys import Access, Grant, Scope
from longpole_collector.projects import Project, Projects


class Visit(NamedTuple):
    """A request that was let in."""

    project: Project
    grant: Grant

    @property
    def health(self) -> Health:
        """Where it is counted."""
        return self.project.ingest.health


class Door:
    """One address: who may come in without a key depends on where it is bound."""

    def __init__(self, access: Access, projects: Projects, *, is_open: bool) -> None:
        """``is_open`` lets in who shows no key, to everything in the default project."""
        self.access = access
        self.projects = projects
        self.is_open = is_open

    async def admit(self, authorization: str, scope: Scope) -> Visit:
        """Let a request in; a key that is shown decides its project.

        Args:
            authorization: its header of that name, or empty.
            scope: what it wants.

        Raises:
            NoKey: it needs a key, or shows one that is not known.
            WrongScope: its key is for something else.
            TooFast: its key sends too fast.
            StoreBusy: its project cannot be opened now.
        """
        grant = self.access.grant(authorization, scope, is_open=self.is_open)
        visit = Visit(await self.projects.get(grant.project), grant)
        if scope is Scope.INGEST:
            self.access.check_rate(grant)
        return visit
