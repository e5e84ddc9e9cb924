"""One process of the fake driver's machine, through its runs. Pure: who calls says what time it is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hawker.runtime.driver import Exit, ProcessState, Run
from hawker.runtime.fake_program import Script, read_command
from hawker.runtime.spec import ProcessSpec

_FIRST_PID = 2  # inside its machine; 1 is the pilot


@dataclass(slots=True)
class FakeProcess:
    """`ends_at` is when it ends by itself; infinite for a server, and while it does not run."""

    spec: ProcessSpec
    index: int
    state: Run = Run.HELD
    run: int = 0
    started_at: float | None = None
    ends_at: float = math.inf
    last_exit: Exit | None = None
    script: Script = field(default_factory=Script)

    @property
    def running(self) -> bool:
        return self.state is Run.RUNNING

    def begin(self, now: float, files: Mapping[str, bytes]) -> Script:
        """The next run. A script that is `missing` must be ended by the caller."""
        own = files if self.spec.root is None else {file.path: file.content for file in self.spec.files}
        self.script = read_command(self.spec.argv, self.spec.env, own)
        self.state, self.run, self.started_at = Run.RUNNING, self.run + 1, now
        self.ends_at = now + self.script.runs_s
        return self.script

    def end(self, exit: Exit) -> None:
        self.state, self.ends_at, self.last_exit = Run.EXITED, math.inf, exit

    def told(self) -> ProcessState:
        return ProcessState(
            name=self.spec.name,
            state=self.state,
            run=self.run,
            pid=_FIRST_PID + self.index if self.running else None,
            started_at=self.started_at,
            last_exit=self.last_exit,
        )
