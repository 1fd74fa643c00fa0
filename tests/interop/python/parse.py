"""What Python SDKs' own types make of events of the API: a list of them on standard input; `{parser: {type: error}}` on standard output."""

import json
import sys

from openai.types.realtime import RealtimeServerEvent
from pipecat.services.openai.realtime import events as pipecat
from pydantic import TypeAdapter

OPENAI = TypeAdapter(RealtimeServerEvent)


def openai(event):
    OPENAI.validate_python(event)


def by_pipecat(event):
    if event["type"] in pipecat._server_event_types:
        pipecat.parse_server_event(json.dumps(event))
    else:
        raise LookupError("unknown")


def main():
    events = json.load(sys.stdin)
    faults = {"openai": {}, "pipecat": {}}
    for event in events:
        for name, parse in [("openai", openai), ("pipecat", by_pipecat)]:
            try:
                parse(event)
            except LookupError:
                faults[name][event["type"]] = "unknown"
            except Exception as error:
                faults[name][event["type"]] = f"{error}"[:2000]
    json.dump(faults, sys.stdout)


main()
