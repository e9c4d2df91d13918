"""Shows a defect of grpc.aio: one request whose path is not UTF-8 ends the server. The report is grpc-path-defect.md.

The program prints OK before that request. After it, it prints UNAVAILABLE if grpcio has the defect. It needs only
grpcio.
"""

import asyncio
import logging
import sys

import grpc
from grpc import aio


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def connection_bytes(path: bytes) -> bytes:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x")]
    fields += [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    block = b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(4, 0, 0, b"") + http2_frame(1, 5, 1, block)


async def echo(message_bytes: bytes, _: object) -> bytes:
    return message_bytes


async def call_echo(port: int) -> str:
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            await channel.unary_unary("/a.B/Echo")(b"x", timeout=2)
        except aio.AioRpcError as error:
            return str(error.code().name)
        return "OK"


async def main() -> None:
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    server = aio.server()
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"before: {await call_echo(port)}\n")
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(connection_bytes(b"/\xff"))
    await writer.drain()
    await asyncio.sleep(1)
    sys.stdout.write(f"after: {await call_echo(port)}\n")
    writer.close()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
