"""Small templates, one feature of the language each, all rendered with CONTEXT. Some are meant to be refused."""

CONTEXT = {
    "bos_token": "<s>", "eos_token": "</s>",
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "héllo wörld"},
                 {"role": "assistant", "content": "ok", "n": 2}],
    "text": "The quick  brown\tfox\njumps <over> 'the' \"lazy\" dog & co.", "empty": "", "blank": " \t\n ",
    "uni": "Ünïcödé ßtraße ǰ ﬁ ΑΣ ΣΑ İ 日本語 🦜é", "spaces": "\u00a0\u2003 x \u3000\u1680", "crlf": "a\r\nb\rc\n",
    "lines": "one\n\n two\n\tthree\n", "num": 7, "neg": -7, "big": 9007199254740993, "zero": 0, "one": 1.0, "pi": 3.14159,
    "tiny": 1e-7, "huge": 1e22, "exp": 1.5e300, "f16": 1e16, "third": 0.1, "yes": True, "no": False, "nothing": None,
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "mixed": [1, "a", None, True, 2.5, [1, "x"], {"k": "v"}], "nil": [],
    "dict": {"b": 1, "a": "x", "C": None}, "deep": {"x": {"y": [{"z": "found"}]}}, "nodict": {},
    "people": [{"name": "Zoe", "age": 30, "city": "X"}, {"name": "adam", "age": 25, "city": "Y"},
               {"name": "Bob", "age": 30, "city": "X"}],
    "long": 18446744073709551615, "longer": -123456789012345678901234567890,
    "quote": "it's \"both\" \\ \n\t\x07\u00ad\u200b\U000e0001", "items": "a variable named items", "digits": "12", "frac": " 4.75 ",
}

SNIPPETS = r'''
{{ num }} {{ neg }} {{ one }} {{ pi }} {{ tiny }} {{ huge }} {{ exp }} {{ f16 }} {{ third }} {{ big }}
{{ yes }} {{ no }} {{ nothing }} {{ missing }} {{ empty }}
{{ list }} {{ mixed }} {{ dict }} {{ deep }} {{ nil }} {{ nodict }}
{{ (1,) }} {{ (1, 2) }} {{ () }} {{ 1, 2 }} {{ [(), ((),)] }}
{{ quote }}|{{ [quote] }}
{{ ["it's", 'say "hi"', "both ' and \"", uni, spaces] }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ -7.5 // 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ 2 // 0.1 }} {{ 1 // 0.1 }} {{ -1 // 1e-7 }} {{ 0.3 // 0.1 }} {{ -0.0 // 2 }} {{ 7.5 // -2 }} {{ 1e300 // 1e-300 }} {{ 0.5 % 0.1 }} {{ -0.5 % 0.1 }}
{{ 1 / 3 }} {{ 2 / 1 }} {{ 10 / 4 }} {{ 1e3 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e-5 }} {{ 1e5 }} {{ 123456789012345680.0 }}
{{ 0.1 + 0.2 }} {{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 100.0 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ true + 1 }} {{ true == 1 }} {{ 1 == 1.0 }} {{ "a" == "a" }} {{ "1" == 1 }} {{ none == false }} {{ [] == [] }} {{ [1, [2]] == [1.0, [2]] }} {{ {} == {} }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ (1,) == [1] }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 >= 2 != 1 }} {{ "a" < "b" }} {{ "Z" < "a" }} {{ [1, 2] < [1, 3] }} {{ "é" > "z" }}
{{ 1 < "a" }}
{{ missing < 1 }}
{{ missing + 1 }}
{{ missing.attr }}
{{ missing['x'] }}
{{ messages[0].nope.more }}
{{ messages[0].nope }}|{{ messages[9] }}|{{ dict['zz'] }}|{{ text[99] }}
{{ messages[9].x }}
{{ missing() }}
{{ num() }}
{{ "a" + 1 }}
{{ 1 + "a" }}
{{ "a" * 3 }} {{ 3 * "ab" }} {{ [1, 2] * 2 }} {{ "a" * -1 }}|{{ [0] * 0 }}
{{ "a" - "b" }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ "a" ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ missing ~ "z" }}
{{ 1 ~ 2 + 3 }}
{{ 1 + 2 ~ 3 }}
{{ 1 ~ 2 * 3 }}
{{ not true }} {{ not missing }} {{ not [] }} {{ not 0.0 }} {{ not "x" }} {{ not not 1 }}
{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or "x" }} {{ "" or none or [] }} {{ missing or "d" }} {{ 1 or missing.x }}
{{ "y" if yes else "n" }} {{ "y" if no else "n" }} {{ "y" if no }}| {{ "a" if no else "b" if no else "c" }}
{{ 1 if 2 if 0 else 3 else 4 }}
{{ "a" in "abc" }} {{ "x" not in "abc" }} {{ 1 in list }} {{ "a" in dict }} {{ "zz" in dict }} {{ none in mixed }} {{ "" in "" }} {{ 2.5 in mixed }} {{ "a" in missing }} {{ [1, "x"] in mixed }}
{{ 1 in "abc" }}
{{ "a" in nothing }}
{{ "a" in 5 }}
{{ not 1 in [2] }} {{ 1 in [1] == true }} {{ 1 in [1] and 2 in [2] }}
{{ -num }} {{ +num }} {{ --num }} {{ -num|abs }} {{ -1.5|abs }} {{ -2 ** 2 }} {{ (-3)|abs }}
{{ -"a" }}
{{ text[0] }}{{ text[-1] }}{{ uni[0] }}{{ uni[-1] }}{{ uni[-2] }} {{ list[0] }} {{ list[-1] }} {{ list[-3] }} {{ list[3] }} {{ messages[-1]['role'] }}
{{ text[1:4] }}|{{ text[:3] }}|{{ text[-4:] }}|{{ text[::-1] }}|{{ text[::2] }}|{{ text[10:2:-2] }}|{{ text[5:1] }}|{{ text[:-50] }}|{{ text[100:] }}
{{ uni[1:5] }}|{{ uni[::-1] }}|{{ uni[::3] }}|{{ uni[-5:-1] }}|{{ uni[20:2:-3] }}
{{ list[1:] }} {{ list[:1] }} {{ list[::-1] }} {{ list[::2] }} {{ list[5:] }} {{ list[-2:] }} {{ list[:-1] }} {{ list[2:0:-1] }} {{ list[none:none] }} {{ (1,2,3)[1:] }}
{{ list[::0] }}
{{ list["a":] }}
{{ nothing[1:] }}
{{ missing[1:] }}
{{ dict[1:] }}
{{ dict.b }} {{ dict['a'] }} {{ dict.C }} {{ dict.get('a') }} {{ dict.get('z') }} {{ dict.get('z', 5) }} {{ deep.x.y[0].z }} {{ deep['x']['y'][0]['z'] }} {{ deep.x['y'].0.z }}
{{ dict.items() }} {{ dict.keys() }} {{ dict.values() }} {{ dict.keys()|list }} {{ nodict.items()|list }}
{{ dict['items'] is defined }} {{ dict.items is defined }} {{ nodict['keys'] is callable }} {{ dict['nope'] is defined }} {{ text.upper is callable }} {{ text['upper']() }} {{ dict['get']('a') }}
{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in dict %}{{ k }};{% endfor %}
{% for c in uni %}{{ c }}.{% endfor %}
{% for x in missing %}x{% else %}none{% endfor %}
{% for x in nothing %}x{% endfor %}
{% for x in 5 %}x{% endfor %}
{% for x in nil %}x{% else %}else{% endfor %} {% for x in list %}{{ x }}{% else %}else{% endfor %}
{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}
{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.nope }};{% endfor %}
{% for x in list %}{{ loop.previtem.x }}{% endfor %}
{% for x in list if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }} {% endfor %}
{% for m in messages if m.role != 'system' %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}
{% for a, b in [(1, 2), [3, 4], "xy"] %}{{ a }}-{{ b }} {% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in list %}{% for y in words %}{{ loop.index }}{{ x }}{{ y }}{% if loop.last %}!{% endif %}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in range(3) %}{% if x == 0 %}{% break %}{% endif %}{{ x }}{% else %}none of {{ x|default("nothing") }}{% endfor %}|{% for x in range(3) %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}
{% for x in range(2) %}{% continue %}{% else %}all skipped{% endfor %}|{% for x in range(2) %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}
{% set ns = namespace(a="before") %}{% for x in range(3) %}{% set ns.a %}{{ x }}{% break %}{% endset %}{% endfor %}{{ ns.a }}{% for x in range(3) %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{{ x }}{% endfilter %}{% endfor %}
{% set ns = namespace(n=0) %}{% for x in range(6) if ns.n < 3 %}{% set ns.n = ns.n + x %}{{ x }}{{ loop.index }}{% endfor %}|{% set ns.n = 0 %}{% for x in range(6) if ns.n < 3 %}{{ loop.last }}{% set ns.n = ns.n + x %}{{ x }}{{ loop.nextitem|default("none") }} {% endfor %}
{% set ns = namespace(n=0) %}{% for x in range(6) if ns.n < 3 %}{% set ns.n = ns.n + x %}{{ x }}/{{ loop.length }}{{ loop.revindex }} {% else %}none{% endfor %}|{% for x in range(3) if ns.n == 0 %}{{ x }}{% else %}none{% endfor %}
{% for x, y in [(1, 2), (3, 4, 5)] if x %}{{ x }}{% break %}{% endfor %}|{% for m in messages if m.role != "system" %}{{ loop.index0 }}{{ m.role }}{{ loop.first }}{{ loop.last }}{{ loop.previtem.role if not loop.first }} {{ loop|length }}{% endfor %}
{% for x in [[1, [2, 0]], 0, [3]] if x recursive %}({% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{{ loop.depth }}{% endif %}){% endfor %}
{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, 2] %}{% set y = x %}{% endfor %}{{ y }}|{{ x }}
{% set y = 0 %}{% for x in [1, 2] %}{{ y }}{% set y = x %}{{ y }}{% endfor %}{{ y }}
{% set y = 0 %}{% for x in [1, 2] %}{% if x == 2 %}{{ y }}{% set y = 9 %}{% endif %}{{ y }}{% endfor %}{{ y }}
{% if true %}{% set y = 5 %}{% endif %}{{ y }}
{% set ns = namespace(n=0, s='') %}{% for x in list %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.missing }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns }}
{% set dict.x = 1 %}
{% set nope.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}
{% set a, b = [1] %}
{% set x %}block {{ num }}{% set inner = 1 %}{% endset %}{{ x }}|{{ inner }}|{{ x is string }}
{% set x | upper | replace('B', 'c') %}block{% endset %}{{ x }}
{% set x = 1, %}{{ x }}
{% filter upper %}abc {{ text }}{% set q = 1 %}{% endfilter %}{{ q }}
{% filter replace('a', 'b') | trim %}  banana {% endfilter %}|
{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m(1, c=9) }}{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m() }}
{% macro m() %}{{ caller() }}-{{ caller() }}{% endmacro %}{% call m() %}body {{ num }}{% endcall %}
{% macro m(list) %}{% for i in list %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) m([1, 2]) %}<{{ x }}>{% endcall %}
{% macro m() %}x{% endmacro %}{{ m }}|{{ m.name }}|{{ m.arguments }}|{{ m() is string }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(6) }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }}
{% macro m() %}{{ outer }}{% endmacro %}{% set outer = 'set later' %}{{ m() }}
{% macro m() %}{{ loop }}{{ x }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}
{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ v }}{% endmacro %}{{ m() }}{{ v }}
{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}
{% with a = 1, b = num %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}
{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}
{% generation %}x{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}
{% for n in [1, [2, [3]]] recursive %}{% if n is iterable %}({{ loop(n) }}){{ loop.depth }}{% else %}{{ n }}{% endif %}{% endfor %}
{% for n in [1] %}{{ loop([2]) }}{% endfor %}
{% print 1, "a" %}
{% raw %}{{ x }} {% if %} {# c #}{% endraw %}
  {%- raw -%}  a {{ b }}  {%- endraw -%}  x
a{# comment #}b{#- comment -#} c {#- x +#} d
{{ "a" "b" 'c' }}
{{ 'it\'s' }} {{ "tab\there" }} {{ '\x41\u00e9\U0001F600\101\\' }} {{ 'a\q' }} {{ "nl\nx" }}
{{ "{{ }} {% %} {# #}" }}
{{ {'a': {'b': 1}}['a']['b'] }} {{ {'a': 1}.a }} {{ {1: 'x', none: 'y', true: 'z'} }} {{ {'a': 1, 'a': 2} }}
{{ {[1]: 2} }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ [1, 2,][1] }}
{{ (1 + 2) * 3 }} {{ ((1)) }}
{{ long }} {{ longer }} {{ [long]|tojson }} {{ long is number }} {{ long is integer }} {{ long > 5 }} {{ long == long }} {{ longer < 0 }} {{ long|int }} {{ long ~ "" }} {{ "{}".format(long) }} {{ long|string }} {{ long is float }} {{ not long }}
{{ "x" if missing is defined else "y" }} {{ num is defined }} {{ nothing is defined }} {{ dict.zz is defined }} {{ missing is undefined }} {{ dict.zz is not defined }}
{{ nothing is none }} {{ missing is none }} {{ 0 is none }} {{ none is none }} {{ None is none }}
{{ text is string }} {{ num is string }} {{ dict is mapping }} {{ list is mapping }} {{ list is iterable }} {{ text is iterable }} {{ num is iterable }} {{ dict is iterable }} {{ nothing is iterable }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is string }} {{ missing is mapping }}
{{ list is sequence }} {{ text is sequence }} {{ dict is sequence }} {{ num is sequence }} {{ dict.items() is sequence }} {{ (1,) is sequence }} {{ range(2) is sequence }} {{ list|map('string') is sequence }}
{{ num is number }} {{ one is number }} {{ yes is number }} {{ text is number }} {{ num is integer }} {{ yes is integer }} {{ one is float }} {{ num is float }} {{ yes is boolean }} {{ 1 is boolean }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ "abc" is lower }} {{ "ABC" is upper }} {{ "1" is lower }} {{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 2 is gt 1 }} {{ 2 is lt 1 }} {{ 2 is ge 2 }} {{ 2 is le 1 }} {{ 2 is equalto 2 }} {{ 1 is in [1] }} {{ "a" is in "abc" }} {{ none is sameas none }} {{ 1 is sameas true }}
{{ num is not none and text is string or no }} {{ not num is none }}
{{ "a" is in ["a"] and 1 is not in [2] }}
{{ num is nope }}
{% if false %}{{ num is nope }}{{ num|nope }}{% endif %}ok
{{ num|nope }}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}
{{ text|upper }} {{ text|lower }} {{ text|capitalize }} {{ text|title }} {{ num|upper }} {{ none|upper }} {{ missing|upper }}|
{{ uni|upper }} {{ uni|lower }} {{ uni|capitalize }} {{ uni|title }} {{ uni.title() }} {{ uni.swapcase() }} {{ "they're bill's".title() }} {{ "they're bill's-x (y"|title }}
{{ blank|trim }}|{{ " x "|trim }}|{{ spaces|trim }}|{{ "xxaxx"|trim("x") }}|{{ num|trim }}|{{ missing|trim }}|
{{ text|length }} {{ uni|length }} {{ list|length }} {{ dict|length }} {{ nil|count }} {{ missing|length }} {{ range(3)|length }} {{ dict.items()|length }}
{{ num|length }}
{{ none|length }}
{{ list|map('string')|length }}
{{ list|join }} {{ list|join(', ') }} {{ mixed|join('|') }} {{ people|join(',', attribute='name') }} {{ "abc"|join('-') }} {{ dict|join }} {{ missing|join('x') }}|{{ list|join(1) }}
{{ none|join }}
{{ list|first }} {{ list|last }} {{ nil|first }}|{{ nil|last }}|{{ text|first }}{{ text|last }} {{ dict|first }} {{ missing|first }}|
{{ list|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ list|sort(reverse=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|sort(true, attribute='age')|map(attribute='name')|join }}
{{ mixed|sort }}
{{ dict|dictsort }} {{ dict|dictsort(true) }} {{ dict|dictsort(reverse=true) }} {{ {'a': 2, 'b': 1}|dictsort(by='value') }} {{ {'a': 2, 'b': 1}|dictsort(false, 'value') }}
{{ list|dictsort }}
{{ dict|items|list }} {{ missing|items|list }} {% for k, v in dict|items %}{{ k }}{{ v }}{% endfor %}
{{ list|items|list }}
{{ list|list }} {{ "abc"|list }} {{ dict|list }} {{ missing|list }} {{ (1, 2)|list }} {{ range(3)|list }}
{{ list|reverse|list }} {{ text|reverse }} {{ uni|reverse }} {{ (1, 2)|reverse|list }} {{ dict|reverse|list }}
{{ list|sum }} {{ people|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ list|sum(start=10) }} {{ nil|sum }}
{{ list|min }} {{ list|max }} {{ words|min }} {{ words|max }} {{ words|max(case_sensitive=true) }} {{ nil|min }}| {{ people|max(attribute='age') }}
{{ messages|map(attribute='content.parts.0.text', default='?')|join(' ') }} {{ people|map(attribute='pet.name', default='none')|list }} {{ people|map(attribute='pet', default=none)|list|length }}
{{ people|groupby('pet', default='none')|map('first')|list }} {{ messages|groupby('n', default=1)|map('last')|map('length')|list }} {{ people|groupby('pet.name', default='x')|map(attribute='0')|list }}
{{ [none, none]|sort }} {{ people|sort(attribute='pet')|map(attribute='name')|list }} {{ [{'a': none, 'b': 2}, {'a': none, 'b': 1}]|sort(attribute='a,b')|map(attribute='b')|list }}
{{ [none, 1]|sort }}
{{ people|groupby('pet') }}
{{ dict|items|reverse + [1] }}
{{ [1, 2, 1, 'a', 'A']|unique|list }} {{ [1, 2, 1, 'a', 'A']|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ people|map(attribute='name')|list }} {{ words|map('upper')|list }} {{ people|map(attribute='zz', default='d')|list }} {{ words|map('replace', 'a', 'Q')|join }} {{ nothing|map('upper')|list }}
{{ people|map(attribute='zz')|list }}
{{ list|map('nope')|list }}
{{ list|select|list }} {{ mixed|select('string')|list }} {{ list|select('gt', 1)|list }} {{ list|reject('odd')|list }} {{ mixed|reject('none')|list }} {{ list|select('in', [1, 2])|list }} {{ mixed|select|list }}
{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|rejectattr('age', '==', 30)|list|length }} {{ people|selectattr('nope')|list }} {{ messages|selectattr('n', 'defined')|list }} {{ messages|selectattr('role', 'in', ['user'])|first }} {{ nothing|selectattr('x')|list }} {{ people|selectattr('name', 'lt', 'C')|list|length }}
{% if people|selectattr('age', 'gt', 99) %}generators are true{% endif %}
{{ people|groupby('age') }} {% for g, l in people|groupby('city') %}{{ g }}:{{ l|length }} {% endfor %}
{{ list|batch(2)|list }} {{ list|batch(2, 0)|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}
{{ missing|default }}|{{ missing|default('d') }} {{ none|default('d') }} {{ ""|default('d', true) }} {{ missing|d(1) }} {{ num|default('d') }} {{ no|default('x', boolean=true) }}
{{ missing.x|default('d') }}
{{ "a-b"|replace('-', '+') }} {{ "aaa"|replace('a', 'b', 2) }} {{ "abc"|replace('', '.') }} {{ num|replace(7, 8) }} {{ ""|replace('', 'x') }} {{ "é"|replace('', '-') }}
{{ "12"|int }} {{ "x"|int }} {{ "x"|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ "4.7"|int }} {{ frac|int }} {{ digits|int + 1 }} {{ "ff"|int(0, 16) }} {{ "0x1f"|int(0, 16) }} {{ none|int }} {{ true|int }} {{ "1_000"|int }} {{ ""|int }} {{ [1]|int }}
{{ missing|int }}
{{ "1.5"|float }} {{ "x"|float }} {{ 3|float }} {{ frac|float }} {{ "x"|float(2.5) }} {{ none|float }} {{ "1e3"|float }} {{ "inf"|float }} {{ "nan"|float }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 1234.567|round(-2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 1.005|round(2) }} {{ 42.55|round(1) }}
{{ num|string }} {{ list|string }} {{ none|string }} {{ missing|string }}| {{ 1.0|string + "x" }}
{{ "<a href='x'>\"&\"</a>"|e }} {{ "<a>"|escape }} {{ "<a>"|safe }} {{ "<a>"|safe|e }} {{ "<a>"|forceescape }}
{{ "<b>" + ("<i>"|safe) }} {{ ("<i>"|safe) + "<b>" }} {{ ("<i>"|safe) ~ "<b>" }} {{ ("<i>"|safe)|upper }} {{ ["<a>", "<i>"|safe] }} {{ ("<i>"|safe) == "<i>" }} {{ ("a <i>"|safe).split(' ') }} {{ ("<i>"|safe)[0] + "<" }} {{ ("%s"|safe) }} {{ ("<i>"|safe)|string + "<" }} {{ ("<i>"|safe) * 2 + "<" }} {{ ("<i>"|safe).strip() + '&' }} {{ dict|tojson|safe + "<" }}
{{ lines|indent }}|{{ lines|indent(2) }}|{{ lines|indent(2, true) }}|{{ lines|indent(width=2, blank=true) }}|{{ "x"|indent(first=true) }}|{{ ""|indent(2, true) }}|{{ lines|indent('> ') }}
{{ num|indent }}
{{ "%s is %d and %.2f %5s|%-5s|%05d %x %r %%"|format("a", 3, 1.5, "r", "l", 42, 255, "q") }}
{{ "%s %s" % ("a", 1) }} {{ "%s" % "x" }} {{ "%d%%" % 50 }} {{ "%(a)s" % {"a": 1} }} {{ "%5.1f|" % 3.14159 }} {{ "%+d" % 5 }} {{ "%s" % [1, 2] }} {{ "%e" % 12345.678 }} {{ "%g" % 0.00001 }} {{ "%c" % "x" }} {{ "%i" % 3.99 }}
{{ "%s %s" % "a" }}
{{ "%s" % (1, 2) }}
{{ "%d" % "a" }}
{{ "{} {}".format(1, "a") }} {{ "{0} {1} {0}".format("a", "b") }} {{ "{x} {y.a} {y[b]}".format(x=1, y=dict) }} {{ "{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:%}".format("a", "b", "c", 42, 3.14159, 1234567, 255, 0.25) }} {{ "{{}}".format() }} {{ "{!r}".format("a") }} {{ "{:*^9}".format("mid") }} {{ "{:+}".format(3) }} {{ "{}".format(1.0) }} {{ "{}".format(none) }} {{ "{:s}".format("x") }} {{ "{:e}".format(12345.6789) }} {{ "{:g}".format(0.5) }} {{ "{:_}".format(1234567) }} {{ "{:#x}".format(255) }} {{ "{:b}".format(5) }}
{{ "{}".format() }}
{{ "{".format(1) }}
{{ "{:d}".format("a") }}
{{ text|truncate(10) }}|{{ text|truncate(10, true) }}|{{ text|truncate(12, false, '!', 0) }}|{{ "short"|truncate }}|{{ uni|truncate(8, true, leeway=0) }}
{{ "abc"|center(9) }}|{{ "abcd"|center(9) }}|{{ "x".center(4, '*') }}|{{ "ab".ljust(5, '.') }}|{{ "ab".rjust(5) }}|{{ "-4".zfill(5) }}|{{ "4".zfill(3) }}|{{ "abc".center(6, '-') }}
{{ text|wordcount }} {{ "a b"|urlencode }} {{ "é/ü?&="|urlencode }}
{{ dict|tojson }} {{ mixed|tojson }} {{ nil|tojson }} {{ nodict|tojson }} {{ uni|tojson }} {{ quote|tojson }} {{ text|tojson }} {{ one|tojson }} {{ huge|tojson }} {{ tiny|tojson }} {{ none|tojson }} {{ true|tojson }} {{ big|tojson }}
{{ mixed|tojson(indent=2) }} {{ deep|tojson(indent=4) }} {{ nil|tojson(indent=2) }} {{ [[], {}]|tojson(indent=1) }} {{ dict|tojson(indent='--') }} {{ list|tojson(indent=0) }}
{{ uni|tojson(ensure_ascii=true) }} {{ quote|tojson(true) }} {{ dict|tojson(sort_keys=true) }} {{ dict|tojson(separators=(',', ':')) }} {{ dict|tojson(indent=2, separators=(' ,', ' = ')) }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}
{{ missing|tojson }}
{{ dict.items()|tojson }}
{{ list|map('string')|tojson }}
{{ {(1,): 2}|tojson }}
{{ "a,b,,c".split(',') }} {{ text.split() }} {{ "  a  b ".split() }} {{ "a,b,c".split(',', 1) }} {{ " a b  c ".split(none, 1) }} {{ "".split() }} {{ "".split(',') }} {{ "a,b,c".rsplit(',', 1) }} {{ " a b  c ".rsplit(none, 1) }} {{ "a b c d".rsplit(maxsplit=2) }} {{ " a b ".rsplit() }} {{ " a  b  c ".split(maxsplit=0) }} {{ "  a b  ".rsplit(none, 0) }} {{ "abab".split('ab') }}
{{ "a".split('') }}
{{ " a b c ".rsplit(none, 1) }} {{ "a".rsplit(none, 0) }} {{ "  ".rsplit() }} {{ " a b c ".rsplit(none, 5) }} {{ "é ü".rsplit() }} {{ "aXbXc".rsplit('X') }} {{ "".rsplit('X') }} {{ " a b ".split(none, 2) }} {{ " a b ".split(none, 1) }}
{{ "ǆ ŉx ΐ".title() }} {{ "ǆ ŉx".capitalize() }} {{ "ﬃ".title() }} {{ "ß"|title }} {{ "ß"|capitalize }} {{ "straße ǆ"|title }}
{{ "a--b--c".partition('--') }} {{ "a--b--c".rpartition('--') }} {{ "abc".partition('x') }} {{ "abc".rpartition('x') }} {{ crlf.splitlines() }} {{ lines.splitlines(true) }} {{ "a\x0bb\x1cc\u2028d".splitlines() }}
{{ "  x ".strip() }}|{{ "  x ".lstrip() }}|{{ "  x ".rstrip() }}|{{ "abcba".strip('ab') }}|{{ "éaé".strip('é') }}|{{ "\n\nx\n".lstrip('\n') }}|{{ spaces.strip() }}|{{ "x".strip(none) }}|{{ "日x日".rstrip('日') }}
{{ text.startswith('The') }} {{ text.endswith('.') }} {{ text.startswith(('x', 'T')) }} {{ "abc".startswith('b', 1) }} {{ "abc".endswith('b', 0, 2) }} {{ "".startswith('') }} {{ "abc".startswith('abcd') }} {{ "abc".endswith(()) }}
{{ text.startswith(1) }}
{{ text.find('quick') }} {{ text.find('zz') }} {{ uni.find('日') }} {{ uni.rfind('é') }} {{ "aaa".rfind('a') }} {{ "abcabc".find('c', 3) }} {{ "abc".index('b') }} {{ "aXbXc".count('X') }} {{ "aaaa".count('aa') }} {{ "abc".count('') }} {{ "日本日".index('日', 1) }}
{{ "abc".index('z') }}
{{ "abc".replace('b', 'X') }} {{ "aaa".replace('a', 'b', 1) }} {{ "ab".replace('', '-') }} {{ "x".upper().lower().title() }} {{ "prefix-x".removeprefix('prefix-') }} {{ "x.txt".removesuffix('.txt') }} {{ "abc".removesuffix('') }}
{{ ','.join(['a', 'b']) }} {{ ''.join(words) }} {{ '-'.join('abc') }} {{ ','.join(dict) }}
{{ ','.join([1, 2]) }}
{{ "abc".isalpha() }} {{ "ab1".isalpha() }} {{ "12".isdigit() }} {{ "".isdigit() }} {{ " ".isspace() }} {{ "aB1".isalnum() }} {{ "ABC".isupper() }} {{ "abc1".islower() }} {{ "日本".isalpha() }} {{ "x\ty".expandtabs(4) }} {{ "é".isascii() }} {{ "ßx".upper() }} {{ "abc".capitalize() }} {{ "ABC".swapcase() }} {{ "12".isdecimal() }} {{ "٣".isdigit() }}
{{ "abc".nope() }}
{{ "abc".nope }}|{{ num.nope }}|{{ list.nope }}|{{ "x".__class__ }}|{{ dict.__len__ }}
{{ "x".__class__.__mro__ }}
{{ list.index(1) }} {{ list.count(3) }} {{ [1, [2]].index([2]) }}
{% set l = [1] %}{{ l.append(2) }}{% set _ = l.extend([3, 4]) %}{% set _ = l.insert(0, 'z') %}{{ l }}{{ l.pop() }}{{ l.pop(0) }}{{ l }}
{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{% set _ = d.update(c=3) %}{{ d }}{{ d.pop('a') }}{{ d.setdefault('x', 5) }}{{ d }}{{ d.pop('nope', 'default') }}
{{ [].pop() }}
{{ [1, 2].copy() + [3] }} {{ dict.copy() }} {{ (1,) + (2,) }}
{{ [1] + (2,) }}
{{ range(3) }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)[1] }} {{ range(10)[2:5] }} {{ range(0, 10, 3) }} {{ 2 in range(3) }} {{ range(-3)|list }}
{{ range(1000000) }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }}
{% set d = dict %}{{ d.a }}
{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b{{ j() }}c {% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%B %d, %Y %H:%M:%S %A %j %p %I %%') }} {{ strftime_now('') }}| {{ strftime_now('%-d') }} {{ strftime_now('é %Y %Z|%z|%f') }}
{{ raise_exception('stop: ' ~ num) }}
{{ raise_exception("héllo") }}
{% if num > 5 %}a{% elif num > 3 %}b{% else %}c{% endif %}{% if no %}a{% elif yes %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}{% if no %}x{% endif %}
{% if num == 7 and text %}{% if nil %}x{% else %}y{% endif %}{% endif %}
{%if num%}a{%endif%}{{num}}{{-num}}{{- num -}} x {%- if num -%} y {%- endif -%} z
   {% if num %}   
   indented
   {% endif %}   
   end
a
  {% if num %}
  b
  {% endif %}
c
a {% if num %} b {% endif %} c
  {%+ if num %} keep {%+ endif %}
a {%- if num +%}
b{% endif %}
  {# lstripped comment #}
x
  {#- stripped -#}
  y
{% set x = 1 %}
{% set y = 2 %}
{{ x }}
{{ y }}
  {{ x }}  
{% for x in list %}
  {{ x }}
{% endfor %}
{%- for x in list -%}
  {{ x }}
{%- endfor -%}
{% if num %}   {% endif %}|
{% if num -%}

   x

{%- endif %}
   
 {% if num %}x{% endif %}
{{ "a" }}
{{ "b" }} {# c #}
d
{{ num
   }}{{
num }}
{% if
 num
%}x{% endif %}
{% nope %}
{% if num %}
{% endif %}{% endif %}
{{ num
{% if num
{{ }}
{{ 1 + }}
{{ (1 }}
{{ [1 }}
{{ 1) }}
{{ "abc }}
{# never closed
{% raw %} never closed
{{ a b }}
{{ 1 is 2 is 3 }}
{{ num is defined is defined }}
{% for x list %}{% endfor %}
{% set 1 = 2 %}
{% break %}
{{ $ }}
{{ 'a' | }}
{{ num|default(1, 2, 3) }}
{{ text|trim(x=1) }}
{{ text.split(nope=1) }}
{{ text.split(',', 1, 2) }}
{{ text.replace('a') }}
{{ dict.get() }}
{% for x in list recursive %}{{ x }}{% endfor %}
{{ m() if m is defined else 'no m' }}
{{ [*list] }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 1, 'b': 2}) }}{{ m(1, *[2]) }}
{{ range(*[1, 3])|list }} {{ dict(**{'a': 1}) }}
{{ items }} {{ dict.items()|list|length }} {{ loop is defined }} {{ true }} {{ True }} {{ False }} {{ None }} {{ none }} {{ TRUE }}|
{{ messages|map(attribute='role')|list }} {{ messages|map(attribute='content')|map('upper')|join(' ') }} {{ people|map(attribute='name')|map('first')|join }}
{{ messages[1:]|map(attribute='role')|join(',') }} {{ messages[::-1][0].role }} {{ (messages|last).content }} {{ messages[messages|length - 1].role }} {{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first }}
{{ deep|attr('x') }}|{{ text|attr('upper') is callable }}|{{ dict|attr('get') is defined }}
{{ text|replace('<', '&lt;')|replace("'", '') }}
{{ "a" if 1 is number and 2 is number else "b" }} {{ 5 if num is divisibleby 7 else 6 }}
{{ (1, 2) in [(1, 2)] }} {{ [1, 2] == list[1:] }} {{ 'a' 'b' == 'ab' }}
{{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 100 // 7 // 2 }} {{ 1 - -1 }} {{ 2+3 }} {{ 2-1 }} {{ num-1 }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }} {{ 4611686018427387904 * 1 }}
{{ 1.5 + 1 }} {{ 3.0 * 2 }} {{ 7 / 2.0 }} {{ 2 ** 0.5 }} {{ 1e308 * 10 }} {{ 5 // 2.0 }} {{ -1 % 3.0 }} {{ true + true }} {{ 1 == true }} {{ 0 == "" }}
{{ "x" < 1 if false else "safe" }} {{ missing == missing }} {{ missing == none }} {{ missing != 1 }} {{ missing ~ "x" }} {{ [missing] }} {{ (missing,)|length }} {{ {'a': missing} }}
{% set x = missing %}{{ x }}|{{ x is defined }}{% set x = missing.y if false else 'ok' %}{{ x }}
{% set a = [1, 2] %}{% set b = a %}{{ a == b }}{{ a is sameas b }}{{ [1, 2] is sameas a }}
{%- macro x() -%}  padded  {%- endmacro -%}[{{ x() }}][{{- x() -}}]
{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% set f %}{% for x in list %}{{ x }}{% endfor %}{% endset %}{{ f|length }}{{ f }}
{% for x in list %}{% set ns2 = namespace(v=x) %}{% for y in list %}{% set ns2.v = ns2.v + y %}{% endfor %}{{ ns2.v }} {% endfor %}
{% for x in "" %}{% else %}empty text{% endfor %}{% for x in () %}{% else %}empty tuple{% endfor %}{% for x in {} %}{% else %}empty dict{% endfor %}
{{ [1, 2, 3][1:][0] }} {{ "abc"[1:][0] }} {{ [[1, 2], [3]][0][1] }} {{ {"a": [1, 2]}["a"][1] }} {{ {"a": [1, 2]}.a[1:] }} {{ "abc".upper()[0] }} {{ ("a" ~ "b")[1] }}
{{ list|sort|reverse|list|join("") }} {{ "b,a"|upper|replace(",", "")|list|sort|join }} {{ words|sort|first|upper }} {{ list|length + 1 }} {{ list|length * 2 }} {{ -list|length }} {{ 2 ** list|length }}
'''.strip("\n").split("\n")


def joined(snippets):
    """Lines that belong together: a template may have several, so they are separate here, and some are joined."""
    several = [
        "   {% if num %}   \n   indented\n   {% endif %}   \n   end\n",
        "a\n  {% if num %}\n  b\n  {% endif %}\nc\n\n",
        "  {%+ if num %} keep {%+ endif %}\nx\n",
        "a {%- if num +%}\nb{% endif %}\n\n\nend",
        "  {# lstripped comment #}\nx\n  {#- stripped -#}\n  y",
        "{% set x = 1 %}\n{% set y = 2 %}\n{{ x }}\n{{ y }}\n  {{ x }}  \n",
        "{% for x in list %}\n  {{ x }}\n{% endfor %}\nend\n",
        "{%- for x in list -%}\n  {{ x }}\n{%- endfor -%}\n end",
        "{% if num -%}\n\n   x\n\n{%- endif %}\n   \n",
        "{{ num\n   }}{{\nnum }}\n{% if\n num\n%}x{% endif %}",
        "a\r\nb\rc\n{% if num %}\r\nd{% endif %}\r\n\r\n",
        "{% raw %}\n  {{ a }}\n  {% endraw %}\n x",
        "  {%- raw %}\n  {{ a }}\n  {%- endraw +%}\n x",
        "{% set x %}\n  a\n{% endset %}\n[{{ x }}]",
        "{% macro m(a,\n b=1) %}\n  {{ a }}\n{% endmacro %}\n{{ m(\n 2\n) }}",
        "\n\n{{ num }}\n\n", "\n", "", " ", "{{ num }}\n", "x\n\n", "{# c #}\n", "{# c #}\n\n", "\t{# c #}\nx", "a{# c\n #} \n b",
        "{% if num %}\n{% if num %}\n x\n{% endif %}\n{% endif %}\n",
        "\u2003{% if num %}x{% endif %}", "a\u2003{%- if num %}x{% endif %}", "a\x0b{%- if num -%}\x1c x{% endif %}",
        "{{ 'a' }}\n{% if num %}\n{{ 'b' }}\n{% endif %}\n{{ 'c' }}", "{{ '''a''' }}", "{{ \"a\nb\" }}", "{{ 'a\\\nb' }}",
        "{% if num %}a{% endif %}\n{% if num %}b{% endif %}\n", "{% if num %} \n a{% endif %} \n{% if num %}b{% endif %}",
        "{% for x in list -%}\n {{ x }},\n{%- endfor %}\n.", "text {# c #} text {#- c -#} text", "{##}{#-#}{# #}x",
    ]
    return snippets + several


SNIPPETS = joined(SNIPPETS)
