#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a program in a container by runc, as a rank of an MPI job. The container shares the host's network; mounts and
processes are its own. It has the host's files as its image, to be read only, and the agent's directory at /run/foldback.

    container.py [--user] PROGRAM ARGUMENT…

With --user it has a user namespace of its own, as containers without root have.
"""

import json
import os
import subprocess
import sys
import tempfile

SOCKET = "FOLDBACK_AGENT_SOCKET"
FIRST = 3  # descriptor after standard error
WRITABLE = {"/dev", "/sys", "/tmp"}
NOT_OF_IMAGE = WRITABLE | {"/proc", "/run"}


def bind(source, at, *options):
    return {"destination": at, "type": "bind", "source": source, "options": ["rbind", *options]}


def namespaces(in_user_namespace):
    """As in config.json of OCI. Root of a user namespace is this user outside."""
    kinds = ["mount", "pid", "uts"] + (["user"] if in_user_namespace else [])
    linux = {"namespaces": [{"type": kind} for kind in kinds]}
    if in_user_namespace:
        linux["uidMappings"] = [{"containerID": 0, "hostID": os.getuid(), "size": 1}]
        linux["gidMappings"] = [{"containerID": 0, "hostID": os.getgid(), "size": 1}]
    return linux


def main():
    in_user_namespace = sys.argv[1] == "--user"
    program = sys.argv[2:] if in_user_namespace else sys.argv[1:]
    environment = dict(os.environ)
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    for path in sorted(f"/{name}" for name in os.listdir("/")):
        if path in WRITABLE:
            mounts.append(bind(path, path))
        elif os.path.isdir(path) and path not in NOT_OF_IMAGE:
            mounts.append(bind(path, path, "ro"))
    agents = os.path.dirname(environment.get(SOCKET, ""))
    if os.path.isdir(agents):
        mounts.append(bind(agents, "/run/foldback"))
        environment[SOCKET] = "/run/foldback/agent.sock"
    # A rank of MPICH's speaks to its launcher by a descriptor that it inherits. runc passes the first ones on.
    inherited = []
    if "PMI_FD" in environment:
        os.dup2(int(environment["PMI_FD"]), FIRST)
        environment["PMI_FD"] = str(FIRST)
        inherited = ["--preserve-fds", "1"]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "args": program,
            "cwd": os.getcwd(),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "user": {"uid": 0, "gid": 0},
            "noNewPrivileges": True,
        },
        "root": {"path": "root"},
        "mounts": mounts,
        "linux": namespaces(in_user_namespace),
    }
    with tempfile.TemporaryDirectory() as bundle:
        os.mkdir(f"{bundle}/root")
        with open(f"{bundle}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        name = f"foldback-{os.getpid()}-{os.path.basename(bundle)}"
        # The library is for the program, not for the runtime.
        outside = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = ["runc", "--root", f"{bundle}/state", "run", *inherited, "--bundle", bundle, name]
        return subprocess.run(command, env=outside, close_fds=False, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
