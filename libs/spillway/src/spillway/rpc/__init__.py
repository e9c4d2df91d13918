"""gRPC: our services and their clients, who may call them, and what of each call. Nothing else imports grpc."""

import os

# Its core writes a line for each handshake that fails, whoever fails it: a stranger would fill the disk with them.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
