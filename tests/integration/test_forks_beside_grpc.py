"""User code may fork beside the engine's gRPC: subprocess with a preexec_fn, multiprocessing, Spark's launcher."""

from __future__ import annotations

import subprocess
import sys

BUSY = """
import asyncio, os, subprocess, threading, time
import grpc, grpc.aio
import heronpy.rpc  # sets how gRPC takes forks

async def answer(request, context):
    return request

async def busy(ready):
    server = grpc.aio.server()
    method = {"Say": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", method),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as link:
        say = link.unary_unary("/Echo/Say")

        async def speak():
            while True:
                await say(b"hello")
                ready.set()

        await asyncio.gather(*(speak() for _ in range(8)))

ready = threading.Event()
threading.Thread(target=lambda: asyncio.run(busy(ready)), daemon=True).start()
assert ready.wait(300)
codes = [subprocess.run(["true"], preexec_fn=lambda: None, timeout=120).returncode for _ in range(80)]
print("failed", sum(code != 0 for code in codes), flush=True)
os._exit(0)
"""


def test_a_child_lives_until_its_exec() -> None:
    # One in seven died with gRPC's own handlers of fork().
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "failed 0", done.stderr[-2000:]
