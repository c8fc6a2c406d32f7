"""Makes the kernels of pages: copies of one process that has imported what most of them need, which takes a second.

Sphinx starts this file without arguments (docs/conf.py). Jupyter starts it in place of a kernel (kernels/python3), and
it asks that process for one.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = os.environ["PAGE_KERNELS"]


def ask(connection_file: str) -> None:
    """Have a kernel made for the current folder, and wait until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # comes before the message by which a kernel ends
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(ADDRESS)
        connection.sendall(json.dumps([connection_file, os.getcwd()]).encode() + b"\n")  # noqa: PTH109 (quick to start)
        connection.recv(1)


def serve() -> None:
    """Make a kernel whenever one is asked for. This process only imports: a copy has no threads but one."""
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # kernels end with it, and read this when imported
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # read when Matplotlib is imported
    import altair  # noqa: F401
    import ipykernel.debugger  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    from ipykernel.kernelapp import IPKernelApp

    import bigforest.explain.explain
    import bigforest.predict.in_memory
    import bigforest.training.train  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(ADDRESS)
        listening.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if not os.fork():
                break
            connection.close()
    connection_file, folder = json.loads(connection.makefile().readline())
    os.chdir(folder)
    IPKernelApp.launch_instance(["-f", connection_file])


if __name__ == "__main__":
    ask(sys.argv[1]) if sys.argv[1:] else serve()
