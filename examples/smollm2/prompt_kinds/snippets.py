"""Short programs in other languages than Python, and error messages, for slots of the kinds about programs."""

from __future__ import annotations

from random import Random

from examples.smollm2.prompt_kinds.grammar import Source

# @a and @b stand for numbers, @x and @y for names, @X for a type, @w for a word.
SNIPPETS = (
    "function @x(@y) {\n  return @y.filter(n => n > @a).map(n => n * @b);\n}",
    "const @x = @y => @y.split('').reverse().join('');\nconsole.log(@x('@w'));",
    "let @x = 0;\nfor (let i = 0; i < @a; i++) {\n  if (i % @b === 0) @x += i;\n}\nconsole.log(@x);",
    ("async function @x(url) {\n  const response = await fetch(url);\n  if (!response.ok) return null;\n"
     "  return response.json();\n}"),
    "document.querySelector('#@w').addEventListener('click', () => {\n  alert('@y');\n});",
    "const @x = { @w: @a, @y: @b };\nfor (const [key, value] of Object.entries(@x)) {\n  console.log(key, value);\n}",
    "setTimeout(() => {\n  console.log('@w');\n}, @a00);",
    "interface @X {\n  @y: string;\n  @w?: number;\n}\n\nfunction show(item: @X): string {\n  return item.@y;\n}",
    ("public int @x(int[] @y) {\n    int best = @y[0];\n    for (int v : @y) {\n"
     "        if (v > best) best = v;\n    }\n    return best;\n}"),
    ("public class @X {\n    private final String @y;\n    public @X(String @y) { this.@y = @y; }\n"
     "    public String get() { return @y; }\n}"),
    "List<String> @x = List.of(\"@w\", \"@y\");\nfor (String s : @x) {\n    System.out.println(s.length() * @b);\n}",
    ("#include <stdio.h>\n\nint main(void) {\n    for (int i = @b; i > 0; i--)\n"
     "        printf(\"%d\\n\", i * @a);\n    return 0;\n}"),
    "int @x(const char *s) {\n    int n = 0;\n    while (*s++) n++;\n    return n;\n}",
    "void @x(int *a, int *b) {\n    int t = *a;\n    *a = *b;\n    *b = t;\n}",
    ("#include <iostream>\n#include <vector>\n\nint main() {\n    std::vector<int> @x{@a, @b};\n"
     "    for (int v : @x) std::cout << v << '\\n';\n}"),
    "template <typename T>\nT @x(T a, T b) {\n    return a < b ? b : a;\n}",
    "func @x(@y []int) int {\n\ttotal := @b\n\tfor _, v := range @y {\n\t\ttotal += v\n\t}\n\treturn total\n}",
    "ch := make(chan int)\ngo func() { ch <- @a * @b }()\nfmt.Println(<-ch)",
    "fn @x(@y: &[i32]) -> Option<&i32> {\n    @y.iter().find(|&&v| v > @a)\n}",
    "let @x: Vec<i32> = (1..@a).filter(|n| n % @b == 0).collect();\nprintln!(\"{:?}\", @x);",
    "def @x(@y)\n  @y.select { |n| n > @a }.sum\nend\nputs @x([@a, @b, @a@b])",
    "<?php\nforeach ($@y as $key => $value) {\n    echo \"$key: $value<br>\";\n}",
    "SELECT @y, AVG(@x) FROM @w GROUP BY @y ORDER BY 2 DESC LIMIT @b;",
    "CREATE TABLE @w (\n  id INTEGER PRIMARY KEY,\n  @x TEXT NOT NULL,\n  @y INTEGER DEFAULT @b\n);",
    "#!/bin/bash\nfor f in *.txt; do\n  mv \"$f\" \"@w_$f\"\ndone",
    "if [ -f \"@w.log\" ]; then\n  tail -n @a @w.log | grep -c ERROR\nfi",
    "<ul class=\"@w\">\n  <li>@x</li>\n  <li>@y</li>\n</ul>",
    ".@w {\n  display: flex;\n  gap: @apx;\n  justify-content: center;\n}\n\n.@w:hover { opacity: 0.@b; }",
    "<form action=\"/@w\" method=\"post\">\n  <input name=\"@x\" required>\n  <button>Send</button>\n</form>",
    "fun @x(@y: List<Int>): Int = @y.filter { it % @b == 0 }.sum()",
    "func @x(_ @y: [String]) -> [String] {\n    return @y.filter { $0.count > @b }.sorted()\n}",
    "@x <- c(@a, @b, @a)\nmean(@x)\nbarplot(@x, main = \"@w\")",
    "@x :: Int -> Int\n@x 0 = 1\n@x n = n * @x (n - 1)",
    "local @x = {}\nfor i = 1, @a do\n  @x[i] = i * @b\nend\nprint(#@x)",
    "name: @w\non: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: make @y",
    "FROM debian:stable\nRUN apt-get update && apt-get install -y @w\nCOPY . /@x\nCMD [\"make\", \"@y\"]",
    "@w:\n  port: @a0\n  retries: @b\n  @x: true",
)  # fmt: skip
NAMES = (
    "total",
    "values",
    "items",
    "people",
    "prices",
    "scores",
    "find",
    "update",
    "parse",
    "result",
    "visit",
    "orders",
)
WORDS = (
    "menu",
    "cart",
    "garden",
    "ticket",
    "report",
    "player",
    "music",
    "market",
    "invoice",
    "photo",
    "weather",
    "train",
)


def other_code(rng: Random) -> str:
    """A short program in one of some twenty languages."""
    x, y = rng.sample(NAMES, 2)
    text = rng.choice(SNIPPETS)
    marks = {"@a": str(rng.randint(11, 99)), "@b": str(rng.randint(2, 9)), "@x": x, "@y": y, "@X": x.capitalize()}
    for mark, value in (marks | {"@w": rng.choice(WORDS)}).items():
        text = text.replace(mark, value)
    return text


def error_message(rng: Random) -> str:
    """What a program printed when it failed."""
    name, line, size = rng.choice(NAMES), rng.randint(3, 400), rng.randint(2, 40)
    word = rng.choice(WORDS)
    return rng.choice((
        f"Traceback (most recent call last):\n  File \"{word}.py\", line {line}, in <module>\n"
        f"    print({name}[{size}])\n"
        "IndexError: list index out of range",
        f"Traceback (most recent call last):\n  File \"{word}.py\", line {line}, in {name}\n    return a + {size}\n"
        "TypeError: can only concatenate str (not \"int\") to str",
        f"{word}.js:{line}\nTypeError: Cannot read properties of undefined (reading '{name}')",
        f"{word}.c:{line}:{size}: error: expected ';' before 'return'",
        f"{word}.c:{line}:{size}: warning: unused variable '{name}'",
        f"Exception in thread \"main\" java.lang.NullPointerException\n"
        f"\tat {word.capitalize()}.{name}({word}.java:{line})",
        f"error[E0382]: borrow of moved value: `{name}`\n --> src/{word}.rs:{line}:{size}",
        f"bash: ./{word}.sh: Permission denied",
        f"bash: {word}: command not found",
        "fatal: not a git repository (or any of the parent directories): .git",
        f"CONFLICT (content): Merge conflict in {word}.py",
        f"json.decoder.JSONDecodeError: Expecting ',' delimiter: line {line} column {size}",
        f"ERROR: relation \"{word}\" does not exist\nLINE {size}: SELECT * FROM {word}",
        f"ModuleNotFoundError: No module named '{word}'",
        f"OSError: [Errno 98] Address already in use (port {line + 8000})",
        f"make: *** [Makefile:{line}: {word}] Error {size}",
        f"RecursionError: maximum recursion depth exceeded in {name}",
        f"404 Not Found: /{word}/{line}",
    ))  # fmt: skip


SLOTS: dict[str, Source] = {"othercode": other_code, "errormessage": error_message}
