"""What Python SDKs' own types make of events of the API: `{parser: [event]}` on standard input, `{parser: {type: error}}` on standard output."""

import json
import sys

from openai.types.realtime import RealtimeServerEvent
from pipecat.services.openai.realtime import events as pipecat
from pydantic import TypeAdapter

OPENAI = TypeAdapter(RealtimeServerEvent)


def by_pipecat(event):
    if event["type"] not in pipecat._server_event_types:
        raise LookupError("unknown")
    pipecat.parse_server_event(json.dumps(event))


PARSERS = {"openai": OPENAI.validate_python, "pipecat": by_pipecat}


def faults(parse, events):
    found = {}
    for event in events:
        try:
            parse(event)
        except Exception as error:
            found[event["type"]] = f"{error}"[:2000]
    return found


json.dump({name: faults(PARSERS[name], events) for name, events in json.load(sys.stdin).items()}, sys.stdout)
