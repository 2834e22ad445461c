"""Files and processes of containers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from heronpy.proto import shell_pb2


class FileData(BaseModel):
    offset: int
    length: int = Field(description="Bytes of the file that `data` stands for.")
    data: str = Field(description="HTML-escaped.")


class FileStats(BaseModel):
    formatted_stat: str
    is_dir: bool
    path: str
    size: int
    modified: float = Field(description="Seconds since the epoch.")


class FileMatch(BaseModel):
    path: str = Field(description="Of the file.")
    offset: int = Field(description="Where the line begins, in bytes.")
    line: str


class FileMatches(BaseModel):
    """Not of Heron."""

    matches: list[FileMatch]
    complete: bool = Field(description="All was searched; else the next three say where to go on.")
    after_path: str
    after_offset: int
    after_inode: int


class ProcessOutput(BaseModel):
    command: str
    stdout: str
    stderr: str

    @classmethod
    def of(cls, reply: shell_pb2.LookReply) -> Self:
        return cls(command=reply.command, stdout=reply.stdout, stderr=reply.stderr)


class ProfileFrame(BaseModel):
    function: str
    file: str
    line: int


class ProfileStack(BaseModel):
    thread: str
    frames: list[int] = Field(description="Numbers of frames, from the outermost caller inwards.")
    samples: int = Field(description="How often it was seen.")
    cpu_ns: int = Field(description="CPU time that the thread used before it was seen.")


class Profile(BaseModel):
    """Stacks of a process, sampled from inside. Not of Heron."""

    instance: str
    pid: int
    seconds: float
    samples: int = Field(description="How often all threads were looked at.")
    dropped: int = Field(description="Stacks that are left out: there were too many different ones.")
    cost_cpu_s: float = Field(description="CPU time that the sampling took.")
    frames: list[ProfileFrame]
    stacks: list[ProfileStack]

    @classmethod
    def of(cls, instance: str, found: shell_pb2.ProcessProfile) -> Self:
        return cls(
            instance=instance,
            pid=found.pid,
            seconds=found.seconds,
            samples=found.samples,
            dropped=found.dropped,
            cost_cpu_s=found.cost_cpu_s,
            frames=[ProfileFrame(function=f.function, file=f.file, line=f.line) for f in found.frames],
            stacks=[
                ProfileStack(thread=s.thread, frames=list(s.frames), samples=s.samples, cpu_ns=s.cpu_ns)
                for s in found.stacks
            ],
        )
