"""Jobs in processes of this machine, each with a share of its cores or a GPU of its own.

A script that begins them runs under ``if __name__ == "__main__":``, as for every use of :mod:`multiprocessing`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch

from models.errors import UserError
from models.training.cluster import Cluster, Said, Workers


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes(Cluster):
    """``at_once`` processes: one for each GPU or, on processors, as many as have a core for each thread."""

    def __init__(self, device: str):
        super().__init__(device)
        n_gpus = torch.cuda.device_count() if device != "cpu" and torch.cuda.is_available() else 0
        self.device = "cuda" if n_gpus else "cpu"
        self.at_once = n_gpus or cores() // self.threads
        if device == "cuda" and not n_gpus:
            raise UserError("No CUDA device is available here; use --device cpu or auto.")
        if not self.at_once:
            raise UserError(f"This machine has no {self.threads} cores; use fewer --threads.")

    def workers(self, function: Callable[..., Any], n: int) -> Workers:
        gpus = [i if self.device == "cuda" else None for i in range(min(n, self.at_once))]
        return _Pool(function, self.threads, gpus)


class _Process(NamedTuple):
    """A process, our end of its pipe, and the number of its GPU."""

    process: BaseProcess
    pipe: Connection
    gpu: int | None


class _Pool(Workers):
    """Processes that take one job after the other."""

    def __init__(self, function: Callable[..., Any], threads: int, gpus: list[int | None]):
        self.function, self.threads = function, threads
        self.running: dict[Any, tuple[int, _Process]] = {}
        self.idle: list[_Process] = []
        self.free = gpus  # of the processes that are not there

    def _process(self, gpu: int | None) -> _Process:
        context = multiprocessing.get_context("spawn")  # a fork would inherit what torch's threads hold
        pipe, its = context.Pipe()
        process = context.Process(target=_work, args=(its, self.function, self.threads, gpu), daemon=True)
        process.start()
        its.close()
        return _Process(process, pipe, gpu)

    @property
    def room(self) -> bool:
        return bool(self.idle or self.free)

    def begin(self, job: int, arguments: tuple) -> None:
        one = self.idle.pop() if self.idle else self._process(self.free.pop(0))
        self.running[one.pipe] = job, one
        with contextlib.suppress(OSError):  # it has died; the pipe says so when it is read
            one.pipe.send(arguments)

    def news(self, seconds: float) -> Iterator[tuple[int, Said, Any]]:
        for pipe in wait(list(self.running), seconds):
            job, one = self.running[pipe]
            try:
                said, item = one.pipe.recv()
            except (EOFError, OSError):  # the process has ended
                one.process.join()
                said, item = Said.DIED, f"exit status {one.process.exitcode}"
            if said is not Said.POSTED:
                del self.running[pipe]
            if said is Said.DIED:
                self.free.append(one.gpu)
            elif said is not Said.POSTED:
                self.idle.append(one)
            yield job, said, item

    def stop(self) -> None:
        for _, one in self.running.values():
            one.process.terminate()

    def close(self) -> None:
        for one in [*self.idle, *(one for _, one in self.running.values())]:
            one.process.kill()
            one.process.join()
            one.pipe.close()


def _work(pipe: Connection, function: Callable[..., Any], threads: int, gpu: int | None) -> None:
    """What a process does: it calls the function as it is asked to, and says what comes of it."""
    if hasattr(os, "setsid"):
        os.setsid()  # a signal to all processes of a terminal is for the one that began this, which then stops it
    if gpu is not None:
        visible = [text for text in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if text]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[gpu] if visible else str(gpu)
    torch.set_num_threads(threads)
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:  # the process that began this has ended
            return
        try:
            said = Said.DONE, function(lambda item: pipe.send((Said.POSTED, item)), *arguments)
        except KeyboardInterrupt:
            said = Said.STOPPED, None
        except Exception as error:
            said = Said.FAILED, error
        pipe.send(said)
