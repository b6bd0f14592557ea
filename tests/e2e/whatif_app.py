"""An application that answers in two ways by turns, so that a busy machine slows both alike.

whatif_app.py NUM FIRST SECOND     each ``VERSION,TOOL_S,ENGINE[,SINCE]``: see :func:`main`
"""

import os
import sys
import time

import openai

import longpole

SYSTEM = "You answer questions about parcels, letters and what became of them. " * 24


@longpole.tool
def lookup(pause_s: float) -> None:
    """Wait as long as the shelf takes."""
    time.sleep(pause_s)


def main() -> None:
    """Run NUM workflows of each kind, or those from SINCE on; VERSION is their route version."""
    longpole.init("whatif-app")
    system = SYSTEM * int(os.environ.get("PROMPT_TIMES", "1"))
    kinds = []
    for word in sys.argv[2:]:
        version, pause_s, engine, *since = word.split(",")
        client = longpole.wrap(openai.OpenAI(base_url=engine, api_key="none"))
        kinds.append((version, float(pause_s), client, int(since[0]) if since else 0))
    for number in range(-2, int(sys.argv[1])):
        for version, pause_s, client, since in kinds:
            if 0 <= number < since:
                continue
            # the first two of each warm up
            shown = version if number >= 0 else "warm-up"
            with longpole.workflow("ask", route="ask", route_version=shown) as run:
                if pause_s:
                    lookup(pause_s)
                answer = client.chat.completions.create(
                    model="tiny",
                    messages=[
                        {"role": "system", "content": system},
                        {"role": "user", "content": f"Where is parcel {number}?"},
                    ],
                    max_tokens=4,
                    temperature=0,
                    stream=True,
                    stream_options={"include_usage": True},
                )
                for _ in answer:
                    pass
                run.accept()
    longpole.flush(30)


if __name__ == "__main__":
    main()
