"""A HyperQueue server and two workers, each in a process of its own, make the tasks of a job definition file; the
worker that has the first of them is killed in the midst.

    unshare --user --map-root-user --net --uts --pid --fork --kill-child --mount-proc \
        python3 hyperqueue_peer.py DIRECTORY_OF_JOBS STATE

Without a network of its own the package's servers would take commands from everybody who reaches the machine.

The package starts a worker only beside a server in the same process. So the process of a worker has a server that
nobody uses, and the link by which its worker finds a server leads to the other one.
"""

import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time
import tomllib

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

LINK = "hq-current"
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
# How long anything may take that usually takes seconds.
PATIENCE_S = 120


def prepare_network():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
    # Servers are reached by the name of their host.
    socket.sethostname("localhost")


def work(state, server):
    cluster = LocalCluster(str(state))
    link = state / "link"
    link.symlink_to(server)
    link.replace(state / LINK)
    cluster.start_worker(WorkerConfig(cores=1))
    print("ready", flush=True)
    # It also returns when a task ends.
    while True:
        signal.pause()


def start_worker(state, server):
    state.mkdir()
    command = [sys.executable, __file__, "work", str(state), str(server)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # The server beside it says things, too.
    assert "ready\n" in iter(worker.stdout.readline, ""), "a worker did not start"
    return worker


def parent_of(process):
    # The name before it may have spaces and brackets.
    stat = (process / "stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def job_of(worker):
    """The process and the number of the job that a worker makes, once it has begun to measure."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if parent_of(process) != worker.pid:
                continue
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if arguments[1:3] == [b"lab", b"job"]:
            directory, number = (os.fsdecode(argument) for argument in arguments[3:5])
            log = pathlib.Path(directory, "logs", f"{number}.log")
            if log.exists() and "run " in log.read_text():
                return int(process.name), number
    return None


def wait_for(what, look):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = look()
        if found is not None:
            return found
        time.sleep(0.01)
    sys.exit(f"waited in vain for {what}")


def kill_in_the_midst(worker, results):
    process, number = wait_for("a job of the first worker", lambda: job_of(worker))
    worker.kill()
    worker.wait()
    # Nobody but this process is there for the children of a process that is gone.
    os.waitpid(process, 0)
    assert not (results / f"{number}.json").exists(), f"job {number} was over before its worker was killed"
    print(f"killed the worker of job {number}", flush=True)


def serve(directory, state):
    definition = tomllib.loads((directory / "hyperqueue.toml").read_text())
    with LocalCluster(str(state / "server")) as cluster:
        server = (state / "server" / LINK).resolve()
        first, second = (start_worker(state / name, server) for name in ("first", "second"))
        job = Job(name=definition["name"], max_fails=None)
        for task in definition["task"]:
            assert task["stdout"] == "none"
            job.program(task["command"], stdout=None, stderr=task["stderr"])
        client = cluster.client()
        submitted = client.submit(job)
        kill_in_the_midst(first, directory / "results")
        client.wait_for_jobs([submitted])
        print(f"{len(definition['task'])} tasks are over", flush=True)
    second.kill()
    second.wait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(*map(pathlib.Path, sys.argv[2:4]))
    else:
        prepare_network()
        serve(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:3]))
