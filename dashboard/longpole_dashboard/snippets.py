"""What starts the first span: a few lines for each provider, framework and sender.

The Start page shows them as they stand, and a test runs them as they stand.
"""

from dataclasses import dataclass
from typing import Final

PYTHON, SHELL = "python", "bash"


@dataclass(frozen=True)
class Snippet:
    """One way to send spans.

    Attributes:
        name: as the list calls it.
        code: what to write; ``{endpoint}`` in a shell's line is the collector's address.
        install: what ``pip install`` gets besides longpole; empty for nothing.
        language: :data:`PYTHON` or :data:`SHELL`.
        note: what else to know; empty for nothing.
        is_run: the lines run with what can be installed beside longpole.
    """

    name: str
    code: str
    install: str = ""
    language: str = PYTHON
    note: str = ""
    is_run: bool = True


_OPENAI: Final = """\
import longpole, openai
client = longpole.wrap(openai.OpenAI())
messages = [{"role": "user", "content": "Say hello."}]
for chunk in client.chat.completions.create(model="gpt-5-mini", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="")"""
_ANTHROPIC: Final = """\
import longpole, anthropic
client = longpole.wrap(anthropic.Anthropic())
messages = [{"role": "user", "content": "Say hello."}]
with client.messages.stream(model="claude-haiku-4-5", max_tokens=50, messages=messages) as stream:
    print(stream.get_final_text())"""
_GOOGLE: Final = """\
import longpole
from google import genai
client = longpole.wrap(genai.Client())
for part in client.models.generate_content_stream(model="gemini-2.5-flash", contents="Say hello."):
    print(part.text or "", end="")"""
_MISTRAL: Final = """\
import longpole, os
from mistralai.client import Mistral
client = longpole.wrap(Mistral(api_key=os.environ["MISTRAL_API_KEY"]))
messages = [{"role": "user", "content": "Say hello."}]
print(*client.chat.stream(model="mistral-small-latest", messages=messages))"""
_COHERE: Final = """\
import longpole, cohere
client = longpole.wrap(cohere.ClientV2())
messages = [{"role": "user", "content": "Say hello."}]
for event in client.chat_stream(model="command-a-03-2025", messages=messages):
    print(event.type)"""
_OLLAMA: Final = """\
import longpole, ollama
client = longpole.wrap(ollama.Client())
messages = [{"role": "user", "content": "Say hello."}]
for part in client.chat(model="qwen3:0.6b", messages=messages, stream=True):
    print(part.message.content, end="")"""
_GROQ: Final = """\
import longpole, groq
client = longpole.wrap(groq.Groq())
messages = [{"role": "user", "content": "Say hello."}]
made = client.chat.completions.create(model="openai/gpt-oss-20b", messages=messages, stream=True)
print(*(chunk.choices[0].delta.content or "" for chunk in made if chunk.choices))"""
_LITELLM: Final = """\
import longpole, litellm
longpole.instrument("litellm")
messages = [{"role": "user", "content": "Say hello."}]
for chunk in litellm.completion(model="openai/gpt-5-mini", messages=messages, stream=True):
    print(chunk.choices[0].delta.content or "", end="")"""
_BEDROCK: Final = """\
import longpole, boto3
client = longpole.wrap(boto3.client("bedrock-runtime"))
messages = [{"role": "user", "content": [{"text": "Say hello."}]}]
for event in client.converse_stream(modelId="amazon.nova-lite-v1:0", messages=messages)["stream"]:
    print(event)"""
_LANGCHAIN: Final = """\
import longpole, longpole.frameworks.langchain
from langchain_openai import ChatOpenAI
longpole.frameworks.langchain.install()
longpole.instrument("openai")  # before the models are made
print(ChatOpenAI(model="gpt-5-mini").invoke("Say hello.").text)"""
_LLAMA_INDEX: Final = """\
import longpole
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
longpole.init()
LlamaIndexInstrumentor().instrument()
# then your agents and query engines as they are, in `with longpole.workflow("answer"):`"""
_PYDANTIC_AI: Final = """\
import longpole, pydantic_ai
from pydantic_ai.capabilities import Instrumentation
longpole.init()
longpole.instrument("openai")  # before the models are made
agent = pydantic_ai.Agent("openai-chat:gpt-5-mini", capabilities=[Instrumentation()])
print(agent.run_sync("Say hello.").output)"""
_OPENAI_AGENTS: Final = """\
import agents, longpole, longpole.frameworks.openai_agents
longpole.frameworks.openai_agents.install()
longpole.instrument("openai")  # before the clients are made
agent = agents.Agent(name="greeter", model="gpt-5-mini")
print(agents.Runner.run_sync(agent, "Say hello.").final_output)"""
_CREWAI: Final = """\
import longpole
from openinference.instrumentation.crewai import CrewAIInstrumentor
longpole.init()
CrewAIInstrumentor().instrument()
longpole.instrument("openai", "litellm")  # before the crew is made"""
_OTLP: Final = """\
export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}
export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
# then start the application"""
_VLLM: Final = """\
export OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf
vllm serve MODEL --otlp-traces-endpoint {endpoint}/v1/traces"""

SNIPPETS: Final = (
    Snippet("OpenAI", _OPENAI, "openai", note="Azure and whatever speaks its protocol too."),
    Snippet("Anthropic", _ANTHROPIC, "anthropic", note="On Bedrock and Vertex too."),
    Snippet("Google GenAI", _GOOGLE, "google-genai", note="On Vertex AI too."),
    Snippet("Mistral", _MISTRAL, "mistralai"),
    Snippet("Cohere", _COHERE, "cohere"),
    Snippet("Ollama", _OLLAMA, "ollama"),
    Snippet("Groq", _GROQ, "groq"),
    Snippet("LiteLLM", _LITELLM, "litellm"),
    Snippet("Bedrock", _BEDROCK, "boto3"),
    Snippet("LangChain, LangGraph", _LANGCHAIN, "langchain-openai"),
    Snippet(
        "LlamaIndex",
        _LLAMA_INDEX,
        "openinference-instrumentation-llama-index",
        note="Its OpenAI package wants openai below 3, which longpole does not wrap: tokens and "
        "the first chunk are as OpenInference tells them.",
        is_run=False,
    ),
    Snippet("Pydantic AI", _PYDANTIC_AI, "pydantic-ai-slim[openai]"),
    Snippet("OpenAI Agents", _OPENAI_AGENTS, "openai-agents"),
    Snippet(
        "CrewAI",
        _CREWAI,
        "openinference-instrumentation-crewai",
        note="It wants openai below 3; these lines were not tested.",
        is_run=False,
    ),
    Snippet(
        "Any OpenTelemetry SDK",
        _OTLP,
        language=SHELL,
        note="OpenTelemetry GenAI, OpenInference, OpenLLMetry, Langfuse, Logfire, OpenLIT, MLflow, "
        "LangSmith and the Vercel AI SDK are understood as they are.",
        is_run=False,
    ),
    Snippet(
        "vLLM",
        _VLLM,
        language=SHELL,
        note="It tells the queue, prefill and decode of each request; a wrapped client's call and "
        "the server's span become one.",
        is_run=False,
    ),
)
