"""Runs the Start page's snippets as they stand, each in a workflow of its name.

Standard input tells the names and their code; what a snippet needs of the world (addresses of
local providers, keys) is in the environment.
"""

import json
import os
import sys

from mistralai.client import sdkconfiguration

import longpole

for name in sdkconfiguration.SERVERS:  # its client knows no variable for the address
    sdkconfiguration.SERVERS[name] = os.environ["MISTRAL_URL"]
longpole.init()  # before the first workflow, as an application does
for name, code in json.load(sys.stdin).items():
    with longpole.workflow(name):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
assert longpole.stats().num_internal_errors == {}
assert longpole.flush(20)
