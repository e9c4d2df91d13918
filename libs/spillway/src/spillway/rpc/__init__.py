"""gRPC: our servers and clients, the rights of callers, and their limits. Nothing else imports grpc."""

import os

# The core library of gRPC writes a line to standard error for each failed TLS handshake. Strangers could fill the disk.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
