"""An MCP server of the official package, over stdio or HTTP: `python mcp_server.py [PORT]`."""

import os
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server: Any = MCPServer("demo")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("out of paper")


@server.tool()
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "not set")


@server.tool()
async def wait() -> str:
    """Never ends."""
    import anyio

    await anyio.sleep_forever()
    return ""


if __name__ == "__main__":
    print("the server starts", file=sys.stderr)
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
