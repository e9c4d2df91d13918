"""gRPC: our services and their clients, who may call them, and what of each call. Nothing else imports grpc."""
