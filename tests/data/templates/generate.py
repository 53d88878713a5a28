"""Writes cases.json: what the reference makes of small chat templates.

The reference is jinja2 3.1.6, set up as `transformers` 4.5x does in `utils/chat_template_utils.py`:
an immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the `generation` tag, `tojson`
through json.dumps without escaping, `raise_exception`, `strftime_now`. The clock stands still.

    pip install jinja2==3.1.6 && python tests/data/templates/generate.py

With a folder of models, `generate.py target/models`, it writes FOLDER/templates.json as well: the templates of the
real tokenizer_config.json and GGUF files there (`pip install gguf` reads the latter), which may not be committed.

All templates are our own but `smollm2`, which is that of SmolLM2-135M-Instruct (Apache-2.0).
"""

import datetime
import json
import pathlib
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 2, 3, 4, 5, 6)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


SYSTEM = {"role": "system", "content": "Be terse."}
USER = {"role": "user", "content": "  Hi there!\n"}
ANSWER = {"role": "assistant", "content": "<think>\nhm, hi\n</think>\n\nHello."}
AGAIN = {"role": "user", "content": "Bye"}
CHAT = [SYSTEM, USER, ANSWER, AGAIN]
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "function": {"name": "weather", "arguments": {"city": "Zürich <\"&'>", "days": 3, "at": 1.0, "x": None}},
        }
    ],
}
TOOL = {"role": "tool", "content": "{\"t\": 21.5}", "name": "weather"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.\n\tSoon & \"late\"",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
        },
    },
}
GENERATE = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
WITH_TOOLS = {**GENERATE, "tools": [WEATHER]}

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

ALTERNATE = """{{ bos_token }}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate: user, assistant, user, …") }}
    {%- endif -%}
    {%- set role = "model" if message.role == "assistant" else message.role -%}
    {{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""

TRIM = """{% for m in messages %}
    {% if m.role == 'user' %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
    {% else %}
<|sys|>{{ m.content }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

TOOLS = """{%- set ns = namespace(last=messages|length - 1, open=true) %}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and not message.content.startswith('<tool_response>') %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if message.thought is defined and message.thought is not none %}
            {%- set thought = message.thought %}
        {%- elif '</think>' in content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
            {%- set thought = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > ns.last and thought %}{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}{%- endif %}
        {{- content }}
        {%- for call in message.tool_calls %}
            {%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

TYPES = """{%- macro type_of(schema) -%}
    {%- if schema.type == "object" -%}
        { {%- for name, property in schema.properties.items() -%}
            {{ name }}{{ "" if name in schema.required else "?" }}: {{ type_of(property) }}
            {%- if not loop.last %}, {% endif -%}
        {%- endfor -%} }
    {%- elif schema.type == "array" -%}
        {{ type_of(schema.get('items', {})) }}[]
    {%- else -%}
        {{ schema.type | default("any") }}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools -%}
// {{ tool.function.description.split("\n")[0] }}
type {{ tool.function.name }} = {{ type_of(tool.function.parameters) }};
{%- endfor -%}"""

VALUES = {"add_generation_prompt": False, "extra": {
    "t": {"a": "<b>&'é\u2028\U0001F600\u0007", "n": None, "f": 1.0, "l": [1, 2], "e": [], "o": {}, "T": True, "big": 12345678901234567890},
    "nested": {"b": {"z": 1, "a": [{"x": 0.1}, "y"]}, "a": 1e-7},
    "word": "  some Words here  ",
    "items": [{"k": "b", "v": 2}, {"k": "a", "v": 1}, {"k": "c", "v": 3, "on": True}],
    "empty": "",
    "numbers": [3, 1, 2],
    "half": 0.5,
}}

# name, template, messages, context
CASES = [
    ("smollm2", SMOLLM2, CHAT, GENERATE),
    ("smollm2_without_system", SMOLLM2, [USER], GENERATE),
    ("smollm2_without_prompt", SMOLLM2, [USER, ANSWER], {}),
    ("alternate", ALTERNATE, [USER, ANSWER, AGAIN], GENERATE),
    ("alternate_refused", ALTERNATE, [SYSTEM, USER], GENERATE),
    ("trim", TRIM, [SYSTEM, AGAIN], GENERATE),
    ("tools", TOOLS, [SYSTEM, USER, CALL, TOOL, TOOL, ANSWER, AGAIN], WITH_TOOLS),
    ("tools_without_any", TOOLS, CHAT, {**GENERATE, "extra": {"enable_thinking": False}}),
    ("tools_thinking", TOOLS, [USER, CALL, TOOL, ANSWER], {"extra": {"enable_thinking": True}}),
    ("macro", TYPES, [], WITH_TOOLS),
    ("bos", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", [USER], GENERATE),
    ("date", "{%- set today = strftime_now(\"%Y-%m-%d\") %}{{ strftime_now('%d %b %Y') }} {{ today }} {{ strftime_now('%H:%M:%S %A %B %j %y %%') }}", [], {}),
    ("tojson", "{{ t|tojson }}\n{{ t|tojson(ensure_ascii=False) }}\n{{ t | tojson(ensure_ascii=true) }}", [], VALUES),
    ("tojson_indent", "{{ t|tojson(indent=4) }}\n{{ nested|tojson(indent=2, sort_keys=true) }}", [], VALUES),
    ("tojson_separators", "{{ nested|tojson(separators=(',', ':')) }}\n{{ numbers|tojson(indent=1, separators=(';', '=')) }}", [], VALUES),
    ("tojson_scalars", "{{ 'a'|tojson }} {{ 1|tojson }} {{ 1.5|tojson }} {{ none|tojson }} {{ true|tojson }} {{ []|tojson }}", [], VALUES),
    ("generation", "{% for m in messages %}\n{% generation %}\n{{ m.content }}\n{% endgeneration %}\n{% endfor %}\n.", [AGAIN, AGAIN], {}),
    ("generation_trimmed", "a  {%- generation -%}  b  {%- endgeneration -%}  c", [], {}),
    ("loop_controls", "{% for n in range(9) %}{% if n == 2 %}{% continue %}{% endif %}{% if n > 5 %}{% break %}{% endif %}{{ n }}{% endfor %}", [], {}),
    ("loop_variables", "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('x', 'y') }};{% else %}none{% endfor %}", CHAT, {}),
    ("loop_filter", "{% for m in messages if m.role != 'system' %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}", CHAT, {}),
    ("loop_else", "{% for m in messages %}x{% else %}nobody{% endfor %}", [], {}),
    ("undefined", "{{ nothing }}|{{ nothing is defined }}|{{ 'x' if nothing else 'y' }}|{{ nothing | default('d') }}|{{ empty | default('e', true) }}|{% for x in nothing %}{{ x }}{% endfor %}|{{ messages[0].nothing }}|{{ messages[0]['nothing'] is undefined }}", CHAT, VALUES),
    ("undefined_attribute", "{{ nothing.at.all }}", CHAT, {}),
    ("undefined_sum", "{{ 'a' + nothing }}", CHAT, {}),
    ("undefined_function", "{{ nothing('a') }}", CHAT, {}),
    ("none_of_it", "{{ none }} {{ none is none }} {{ none == none }} {{ tools is none }} {{ documents }}", [], {}),
    ("booleans", "{{ true }} {{ false }} {{ not true }} {{ 1 == 1 }} {{ true and 'x' }} {{ '' or 'y' }} {{ 'a' in 'cat' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 3 not in [1] }}", [], {}),
    ("numbers", "{{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 8 }} {{ 1.0 }} {{ 10 / 2 }} {{ half }} {{ -3 }} {{ 3 > 2 > 1 }} {{ '5' | int + 1 }} {{ 2.7 | int }} {{ 3 | float }} {{ 3.14159 | round(2) }}", [], VALUES),
    ("strings", "[{{ word | trim }}] [{{ word.strip() }}] [{{ word.lstrip() }}] [{{ word.rstrip() }}] {{ word.upper() }} {{ word | lower }} {{ word | title }} {{ 'abc' | capitalize }} {{ word.replace('o', '0') }} {{ word | replace('e', '3') }} {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a-b'.split('-', 1)[1] }} {{ '-'.join(['a', 'b']) }} {{ ['a', 'b'] | join(', ') }} {{ word | length }}", [], VALUES),
    ("string_tests", "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.find('c') }} {{ 'x' is string }} {{ 1 is number }} {{ [] is sequence }} {{ {} is mapping }} {{ 'x' is iterable }} {{ 1 is odd }} {{ 'a' is in ['a'] }} {{ true is boolean }} {{ 1 is integer }} {{ 1.5 is float }} {{ none is not none }} {{ 'abc'.isdigit() }} {{ '12'.isdigit() }} {{ 'Ab'.islower() }} {{ 'a' is eq('a') }}", [], {}),
    ("slices", "{{ numbers[1:] }} {{ numbers[:-1] }} {{ numbers[-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }} {{ numbers[::2] }} {{ messages[1:] | length }} {{ 'abc'[0] }}", CHAT, VALUES),
    ("lists", "{{ [1, 'a', none, true, 1.5] }} {{ {'a': 1, 'b': 'x'} }} {{ (1, 2) }} {{ [1] + [2] }} {{ numbers | sort }} {{ numbers | first }} {{ numbers | last }} {{ numbers | max }} {{ numbers | sum }} {{ numbers | reverse | list }} {{ 'abc' | list }} {{ range(3) | list }} {{ range(5, 1, -2) | list }} {{ [] | first is undefined }} {{ [[1, 2], [3]] | length }} {{ [1, 1, 2] | unique | list }}", [], VALUES),
    ("quotes", "{{ ['it\\'s', 'say \"x\"', 'back\\\\slash', 'new\\nline', 'é'] }}", [], {}),
    ("dictionaries", "{% for key, value in t.items() %}{{ key }}={{ value }};{% endfor %}{{ t.keys() | list }}{{ t.get('zzz', 'fallback') }}{{ t.get('n') }}{{ t['a'] }}{% for pair in {'b': 1, 'a': 2} | dictsort %}{{ pair[0] }}{{ pair[1] }}{% endfor %}{{ nested.b.a[0].x }}", [], VALUES),
    ("selections", "{{ items | map(attribute='k') | join }} {{ items | selectattr('on') | map(attribute='k') | list }} {{ items | rejectattr('v', 'equalto', 2) | list | length }} {{ items | selectattr('k', 'in', ['a', 'b']) | list | length }} {{ items | sort(attribute='k') | map(attribute='v') | list }} {{ numbers | select('odd') | list }} {{ numbers | map('string') | join('+') }} {{ items | map(attribute='on', default=0) | list }}", [], VALUES),
    ("join_tilde", "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 'ab' * 3 }} {{ '%s has %d' | format('x', 3) }} {{ 'a' 'b' }}", [], {}),
    ("string_of", "{{ t.l | string }} {{ 1.0 | string }} {{ none | string }} {{ true | string + '!' }} {{ numbers | string | length }}", [], VALUES),
    ("set_block", "{% set text %}\n  one\n  {{ 1 + 1 }}\n{% endset %}[{{ text }}]{% set a, b = 1, 2 %}{{ b }}{{ a }}", [], {}),
    ("namespace", "{% set ns = namespace(n=0, seen=[]) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}{% set ns.seen = ns.seen + [m.role] %}{% endfor %}{{ ns.n }} {{ ns.seen | join(',') }}", CHAT, {}),
    ("scopes", "{% set x = 1 %}{% for i in range(2) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}", [], {}),
    ("macros", "{% macro hi(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ hi('A') }} {{ hi(name='B', mark='?') }} {{ hi('C') | upper }}", [], {}),
    ("call_block", "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}x{% endcall %}", [], {}),
    ("filter_block", "{% filter upper %}abc {{ 'd' }}{% endfilter %}", [], {}),
    ("raw", "{% raw %}{{ not this }}{% endraw %} {# nor this #} {{ '{{' }}", [], {}),
    ("white_space", "a\n  {% if true %}  \n  b\n  {% endif %}\nc {%+ if true %} d{% endif +%}\n e\n  {{- ' f' -}}  \n g {#- h -#} i\n\n", [], {}),
    ("html", "{{ '<b> & \"q\" \\'s\\'' }} {{ '<i>' | safe }} {{ '<u>' | e }}", [], {}),
    ("content_parts", "{%- for m in messages %}{%- if m.content is string %}{{ m.content }}{%- elif m.content is iterable %}parts{%- endif %}{%- endfor %}", [AGAIN], {}),
    ("indent", "{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}", [], {}),
    ("refused", "{{ raise_exception('No \"such\" <role>: ' ~ messages[0].role) }}", CHAT, {}),
    ("refused_in_macro", "{% macro check(m) %}{% if m.role != 'user' %}{{ raise_exception('only users') }}{% endif %}{% endmacro %}{% for m in messages %}{{ check(m) }}{% endfor %}", CHAT, {}),
    ("extra_wins", "{{ bos_token }}{{ add_generation_prompt }}", [], {**GENERATE, "extra": {"bos_token": "<other>"}}),
    ("ternary_chain", "{{ 'a' if false else 'b' if false else 'c' }}{{ 'x' if false }}", [], {}),
    ("nested_loops", "{% for m in messages %}{% set outer = loop.index %}{% for c in m.role[:2] %}{{ outer }}{{ c }}{% endfor %};{% endfor %}", CHAT, {}),
    ("recursive_loop", "{% for n in [[1, [2]], [3]] recursive %}{% if n is iterable %}({{ loop(n) }}){% else %}{{ n }}{% endif %}{% endfor %}", [], {}),
    ("with", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", [], {}),
    ("escapes", "{{ 'tab\\tnew\\nline\\u00e9\\x41' }}", [], {}),
    ("unicode", "{{ messages[0].content | upper }} {{ messages[0].content | length }} {{ messages[0].content[1] }} {{ messages[0].content[::-1] }}", [{"role": "user", "content": "straße 歪😀é"}], {}),
]


def render(template, messages, context):
    variables = {key: value for key, value in context.items() if key not in ("tools", "extra")}
    variables.setdefault("add_generation_prompt", False)
    variables.setdefault("bos_token", "")
    variables.setdefault("eos_token", "")
    variables |= {"tools": context.get("tools"), "documents": None}
    variables |= context.get("extra", {})
    return environment().from_string(template).render(messages=messages, **variables)


def run(cases, path):
    out = []
    for name, template, messages, context in cases:
        case = {"name": name, "template": template, "messages": messages, "context": context}
        try:
            case["expected"] = render(template, messages, context)
        except Exception as error:
            # Only the words of raise_exception are the template's own; others say no more than that it fails.
            case["error"] = str(error) if type(error) is jinja2.exceptions.TemplateError else None
        out.append(case)
    reference = {"jinja2": jinja2.__version__, "now": NOW.isoformat(), "cases": out}
    path.write_text(json.dumps(reference, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def real_templates(folder):
    for path in sorted(folder.glob("tokenizers/*/tokenizer_config.json")):
        template = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        if isinstance(template, str):
            yield path.parent.name, template
    for path in sorted(folder.glob("*.gguf")):
        import gguf

        field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
        if field:
            yield path.stem, field.contents()


def real_cases(folder):
    chats = {
        "chat": ([SYSTEM, USER, ANSWER, AGAIN], GENERATE),
        "no_system": ([USER], GENERATE),
        "no_prompt": ([USER, ANSWER], {"bos_token": "<s>"}),
        "tools": ([SYSTEM, USER, CALL, TOOL, TOOL, ANSWER, AGAIN], WITH_TOOLS),
        "tools_last": ([USER, CALL, TOOL], WITH_TOOLS),
        "not_thinking": ([USER], {**GENERATE, "extra": {"enable_thinking": False}}),
        "two_users": ([USER, USER], GENERATE),
        "nobody": ([], GENERATE),
    }
    for name, template in real_templates(folder):
        for kind, (messages, context) in chats.items():
            yield f"{name}: {kind}", template, messages, context


def main():
    run(CASES, pathlib.Path(__file__).with_name("cases.json"))
    for folder in map(pathlib.Path, sys.argv[1:]):
        run(real_cases(folder), folder / "templates.json")


main()
