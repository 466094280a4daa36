"""Word lists and snippets for slots of the kinds about programs."""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from functools import cache
from pathlib import Path
from random import Random

from examples.smollm2.prompt_kinds.grammar import Source, phrases

# Short and plain modules of the standard library, whose functions serve as code to explain, test or translate.
MODULES = (
    "bisect", "calendar", "cmd", "colorsys", "contextlib", "copy", "csv", "difflib", "fnmatch", "fractions",
    "functools",
    "genericpath", 
    "getpass", "glob", "gzip", "heapq", "html", "imghdr", "ipaddress", "keyword", "linecache", "locale",
    "mimetypes", "nturl2path", "numbers", "operator", "pathlib", "posixpath", "pprint", "queue", "random", "reprlib",
    "sched", "shlex", "shutil", "statistics", "string", "stringprep", "tempfile", "textwrap", "timeit", "token", "uuid",
    "wave", "zipapp", "argparse", "configparser", "datetime", "filecmp", "fileinput", "inspect", "tabnanny", "turtle",
)  # fmt: skip

LISTS: dict[str, Source] = {
    "proglang": phrases("""
JavaScript; TypeScript; Java; C; C++; C#; Go; Rust; Ruby; PHP; Swift; Kotlin; R; Perl; Lua; Haskell; Scala; Julia;
Bash"""),
    "task": phrases("""
reverse the words of a sentence; count the vowels in a text; find the longest line of a file; merge two dictionaries;
remove empty lines from a file; rename all files in a folder; convert a temperature; draw a chessboard as text;
simulate a coin toss; shuffle a deck of cards; compute the age from a birth date; validate an email address;
generate a random password; check whether a password is strong; convert a number to Roman numerals; print a calendar;
find the most common word in a text; split a bill among friends; compare two files; download a web page; parse a CSV
file;
sort a list of names by surname; flatten a nested list; measure how long a function takes; cache results of a function;
retry a failing request three times; log messages to a file; read settings from a file; send an email; resize an image;
draw a bar chart; keep a to-do list; convert minutes to hours and minutes; play rock, paper, scissors; roll two dice;
guess a secret number; translate a text to Morse code; encrypt a text with a Caesar cipher; compute the distance between
two points; find common items of two lists; group people by age; count down to a date; walk through a folder tree;
zip a folder; check for a leap year; compute compound interest; mask a credit card number; sum the digits of a number;
rotate a matrix; transpose a table; format a number with thousands separators; capitalise every sentence; wrap long
lines;
detect duplicate files; batch items in groups of ten; limit the rate of requests; look up a word in a dictionary
file"""),
    "taskthird": phrases("""
reverses a string; counts words; removes duplicates from a list; returns the largest of three numbers; checks a date;
reads a file line by line; converts kilometres to miles; sorts people by age; finds a file; prints a multiplication
table;
joins two lists; computes an average; returns the first word of a sentence; swaps two values; formats a phone number;
picks a random item; parses a date; pads a string with zeros; counts how often each letter occurs; merges sorted arrays;
truncates long text; computes the area of a triangle; filters even numbers; builds a URL; counts lines of code;
removes spaces; inverts a dictionary; splits a list in chunks; clamps a value to a range; checks if two words are
anagrams"""),
    "pytask": phrases("""
read a JSON file; sort a dictionary by value; get the current date; loop over two lists at once; remove an item from a
list;
read user input; format a float with two decimals; open a file for writing; list the files in a folder; parse arguments;
catch an exception; make a copy of a list; join strings with commas; create a virtual environment; install a package;
use type hints; write a decorator; use a dataclass; run a subprocess; generate random numbers; plot a line; use regular
expressions; start a thread; make an HTTP request; iterate over a dictionary; sleep for a second; convert bytes to text;
count items with a Counter; use a lambda; sort by two keys; slice a list; define a default argument; write a
generator"""),
    "thingclass": phrases("""
bank account; library; shopping cart; queue; stack; car; student; game board; thermostat; timer; playlist; parking lot;
recipe; matrix; point; rectangle; counter; inventory; phone book; calendar; train ticket; robot; pet; menu"""),
    "funcname": phrases("""
count_words; find_max; is_valid; merge_lists; to_title; parse_line; average; clean_text; group_by; next_day;
total_price; split_name; read_config; rotate; distance; overlap; word_lengths; most_common; discount; remove_vowels"""),
    "param": phrases("""
name; items; text; value; count; price; path; user; index; start; total; key; message; limit; width; color"""),
    "shelltask": phrases("""
find all files larger than {10-900} MB; count the lines of all .py files; delete files older than {3-90} days; list
open ports;
show the {few} biggest folders; rename .txt files to .md; search for a word in all files; copy a folder to another
machine;
see how much disk space is left; watch a log file; kill a process; compress a folder; make a file executable; sort a
file;
remove duplicate lines; replace a word in a file; show hidden files; create nested folders; download a file; back up a
folder;
run a job every night at {1-5}; print the third column of a file; compare two folders; show the current user; check
memory use"""),
    "shellcommand": phrases("""
ls -la; grep -rn "{noun}" .; find . -name "*.log" -mtime +{3-30}; tar -czf backup.tar.gz {noun}s/; chmod 755 {noun}.sh;
df -h; du -sh *; ps aux | sort -k 4; wc -l *.txt; sort names.txt | uniq -c; sed -i 's/{noun}/{noun2}/g' notes.txt; head
-n {5-50}
{noun}.csv; tail -f server.log; cut -d, -f{1-6} data.csv; curl -O https://example.com/{noun}.zip; ssh
{name}@example.com;
mkdir -p a/b/c; git log --oneline; git rebase main; ln -s {noun} {noun2}; kill -9 {1000-9000}; xargs -n {1-4} echo"""),
    "sqltask": phrases("""
find all customers from {city}; count the orders per month; list the {few} most expensive products; find duplicate
emails;
get the average salary of a {job}; show employees hired after {2001-2024}; delete orders older than {2-9} years; sum
the sales by
country; update the price of a product; join orders and customers; find customers without orders; rank students by
grade;
list all books by an author; find the second highest price; count the visitors per {weekday}; add a column; select
random rows"""),
    "sqltable": phrases("""
employees(id, name, salary, city); orders(id, customer_id, date, total); books(id, title, author, year); products(id,
name, price, stock); visits(id, user_id, page, time); students(id, name, class, grade); flights(id, origin, target)"""),
    "sqlquery": phrases("""
SELECT city, COUNT(*) FROM customers GROUP BY city HAVING COUNT(*) > {2-90}; SELECT name FROM employees WHERE salary >
{1000-9000}
ORDER BY name LIMIT {3-20}; UPDATE products SET price = price * 1.{1-20} WHERE stock < {2-60}; SELECT DISTINCT author
FROM books
WHERE year BETWEEN {1900-1960} AND {1961-2020}; DELETE FROM visits WHERE page = '{noun}'; SELECT a.name, b.total FROM
customers a
LEFT JOIN orders b ON a.id = b.customer_id"""),
    "regextask": phrases("""
a date like {2001-2030}-0{1-9}-{10-28}; a phone number; an email address; a hex colour; a time like {10-23}:{10-59}; a
ZIP code;
words that start with {letter}; two repeated words; a number with two decimals; a URL; text in quotes; lines that end
in "{noun}";
numbers between {1-9} and {10-99}; HTML tags; an IP address; words with {few} letters; a file name ending in .jpg;
empty lines"""),
    "regexverb": phrases("""
replace {noun} by {noun2}; split a text at commas; extract all numbers; remove extra spaces; find {s animals}; check a
postcode; match a whole word; ignore case; match across lines; find words ending in -ing"""),
    "webthing": phrases("""
a login form; a {company}; a photo gallery; a navigation bar; a contact form; a pricing table; a countdown; a dark mode
button;
a to-do list; a recipe page; a search box; a footer; a product card for {a object}; an event page for {a event}; a quiz;
a profile page of {a job}; a newsletter form; a star rating; a drop-down menu; a progress bar; an image slider"""),
    "algorithm": phrases("""
binary search; bubble sort; merge sort; quicksort; insertion sort; breadth-first search; depth-first search; Dijkstra's
algorithm; the sieve of Eratosthenes; Euclid's algorithm; a hash table lookup; a binary tree traversal; topological
sorting;
run-length encoding; Huffman coding; a moving average; linear regression; k-means clustering; a linked list; a priority
queue"""),
}  # fmt: skip


@cache
def functions() -> tuple[str, ...]:
    """Short functions of the standard library, dedented, without their docstrings."""
    found = []
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        source = Path(spec.origin).read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__") and node.end_lineno:
                span = list(range(node.lineno - 1, node.end_lineno))
                if ast.get_docstring(node) is not None:
                    text = node.body[0]
                    span = [at for at in span if not text.lineno - 1 <= at < (text.end_lineno or 0)]
                body = textwrap.dedent("\n".join(lines[at] for at in span if lines[at].strip()))
                if 4 <= len(span) <= 18 and len(node.body) > 1 and len(body) < 700:
                    found.append(body)
    return tuple(sorted(set(found)))


def python_code(rng: Random) -> str:
    """One such function."""
    return rng.choice(functions())


def python_head(rng: Random) -> str:
    """The first lines of one, to be completed."""
    lines = python_code(rng).splitlines()
    return "\n".join(lines[: rng.randint(1, max(2, len(lines) // 2))])


def buggy_code(rng: Random) -> str:
    """A small Python function with one mistake."""
    item, items, total = rng.choice((("x", "xs", "s"), ("item", "items", "total"), ("n", "numbers", "result")))
    name, limit = rng.choice(("total", "average", "largest", "count", "collect", "check")), rng.randint(2, 90)
    return rng.choice((
        f"def {name}({items}):\n    {total} = 0\n    for {item} in {items}\n        {total} += {item}\n"
        f"    return {total}",
        f"def {name}({items}):\n    {total} = 0\n    for {item} in {items}:\n        {total} += {item}\n"
        f"        return {total}",
        f"def {name}({items}, {total}=[]):\n    for {item} in {items}:\n        if {item} > {limit}:\n"
        f"            {total}.append({item})\n    return {total}",
        f"def {name}({items}):\n    for i in range(len({items}) + 1):\n        if {items}[i] > {limit}:\n"
        f"            return True\n    return False",
        f"def {name}({items}):\n    return sum({items}) / len({item})",
        f"{items} = [{limit}, {limit + 3}, {limit * 2}]\nfor i in {items}:\n    print({items}[i])",
        f"{item} = input('Number: ')\nif {item} > {limit}:\n    print('large')",
        f"def {name}({item}):\n    if {item} = {limit}:\n        return True\n    else:\n        return False",
        f"while {limit} > 0:\n    print('{name}')\n    {item} = {limit} - 1",
        f"def {name}({items}):\n    {total} = {items}[0]\n    for {item} in {items}:\n        if {item} < {total}:\n"
        f"            {total} = {item}\n    return {item}",
    ))  # fmt: skip


def one_line(rng: Random) -> str:
    """One line of Python that stands for itself."""
    a, b = rng.randint(2, 40), rng.randint(2, 9)
    return rng.choice((
        f"[x * {b} for x in range({a})]", f"sorted(names, key=len)[:{b}]", f"sum(x > {a} for x in values)",
        f"dict(zip(keys, range({a})))", f"max(words, key=lambda w: w.count('{chr(97 + a % 26)}'))",
        f"' '.join(text.split()[:{b}])", f"next((x for x in items if x > {a}), None)", f"x if x > {a} else {b}",
        f"list(map(str, range({b}, {a + b})))", f"{{x % {b} for x in range({a})}}",
        f"text[::-{b}]", f"a, b = b, a + {a}",
        f"open('log.txt').read().count('{chr(97 + a % 26)}')",
        f"any(len(w) > {b} for w in words)",
        f"print(f'{{x:.{b}f}}')",
    ))  # fmt: skip


def expression(rng: Random) -> str:
    """An expression of Python with a value."""
    a, b, c = rng.randint(2, 60), rng.randint(2, 9), rng.randint(2, 30)
    return rng.choice((
        f"{a} // {b}", f"{a} % {b}", f"{b} ** {c % 6}", f"list(range({b}, {a}, {b}))", f"[{a}, {b}, {c}][-1]",
        f"len('{'ab' * b}')", f"'abc' * {b}", f"bool({a % 3})", f"sorted([{a}, {b}, {c}])", f"max({a}, {b * c})",
        f"'{a}' + '{b}'", f"round({a} / {b}, 2)", f"[x for x in range({a % 20}) if x % {b} == 0]", f"divmod({a}, {b})",
    ))  # fmt: skip


def pattern(rng: Random) -> str:
    """A regular expression."""
    a, letter = rng.randint(2, 9), chr(rng.randint(97, 122))
    return rng.choice((
        rf"\d{{{a}}}", rf"^{letter}\w+$", rf"[{letter}-z]{{2,{a + 2}}}", rf"\b\w{{{a}}}\b",
        rf"({letter}|{letter.upper()})+",
        rf"^\d{{1,{a}}}\.\d{{2}}$", r"^\s*$", rf"#[0-9a-f]{{{a}}}", rf"\w+@\w+\.\w{{2,{a + 1}}}",
        rf"(\w)\1{{{a}}}",
        rf"{letter}.*?{letter}", rf"^(?!.*{letter}).+$", rf"https?://[^\s]{{{a},}}",
    ))  # fmt: skip


SLOTS: dict[str, Source] = {
    **LISTS,
    "pycode": python_code,
    "pyhead": python_head,
    "buggy": buggy_code,
    "onelinecode": one_line,
    "pyexpression": expression,
    "regex": pattern,
}
