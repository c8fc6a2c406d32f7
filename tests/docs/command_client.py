"""Has `command_server.py` run a command: hands over words, folder, environment and open files; ends with its code."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109 (quick to start)
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(request)
    code = connection.recv(1)
sys.exit(code[0] if code else 70)  # none where the server has died
