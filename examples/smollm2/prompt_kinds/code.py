"""Kinds about programs: write, explain, fix, test, comment and translate code; shells, SQL, patterns, web pages."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= code-python tail=code follow=code
[Write|Implement|Create|Show me] a Python [function|program|script|one-liner] [that|to] {task}.
[How do I|How can I|What is the best way to] {pytask} in Python?
Python: {pytask}
def {funcname}({param}, {param2}):\\n    # [complete this function|finish this]
Write a Python class for {a thingclass} with [methods for|attributes like] {param} and {param2}.
[Complete|Finish] this [code|function]:\\n\\n{pyhead}
= code-languages tail=code follow=code
[Write|Implement|Give me] [a function|code|an example] in {proglang} that {taskthird}.
[How do you|How can I|How would one] {task} in {proglang}?
{proglang} code to {task}
[Write hello world|Show a for loop|Show how to read a file|Define a class for {a thingclass}|Write a simple timer] in
    {proglang}.
I'm new to {proglang}. [How do I declare variables?|What does a function look like?|Show me how strings work.|Which
    editor should I use?]
= code-explain tail=none follow=code
[What does this code do?|Explain this code.|Explain this function line by line.|What is the output of this?|What is the
    purpose of this function?]\\n\\n```python\\n{pycode}\\n```
{pycode}\\n\\n[Explain this to {audience}.|What does it return?|Can this be written shorter?|Is there a bug in it?]
[Explain|What does this do?] `{onelinecode}`
= code-other tail=none follow=code
[What does this code do?|Explain this code.|What will this print?|Which language is this?|Is there anything wrong with
    this?]\\n\\n{othercode}
{othercode}\\n\\n[Explain it line by line.|Rewrite this in Python.|Rewrite this in {proglang}.|How could this be
    improved?|Add comments.|Write a test for this.]
[Change this so that it handles|Make this work with] [empty input|large numbers|an error|two items|{s
    thingclass}]:\\n\\n```\\n{othercode}\\n```
= error-message tail=none follow=code
[What does this error mean?|How do I fix this?|I get this error. Help!|Why does this happen?]\\n\\n{errormessage}
{errormessage}\\n\\n[Why?|What should I change?|Explain this error to {audience}.|I only wanted to {task}.|It worked on
    {weekday}!]
When I run my {proglang} program I get:\\n\\n{errormessage}\\n\\n[What is wrong|What could be the cause|How do I find
    the place]?
= code-document tail=none follow=code
[How would you describe|What would you name] this function?\\n\\n{pycode}
{pycode}\\n\\n[Document this.|Is this readable?|Give it a better name.|List its inputs and outputs.]
[A good comment|One-line docstring] for this, please:\\n\\n{buggy}
[Write a docstring|Add comments|Add type hints] [for|to] this [function|code]:\\n\\n{pycode}
[Suggest better names for the variables in|Review|What could be improved in] this:\\n\\n```\\n{pycode}\\n```
Write a README for a [Python package|command-line tool|small library] that {taskthird}.
= code-fix tail=none follow=code
[Fix|Find|What is] the [bug|error] in this code[:|?]\\n\\n{buggy}
[Why do I get|What does it mean:|How do I fix] [IndexError: list index out of range|TypeError: 'NoneType' object is not
    iterable|KeyError: '{param}'|NameError: name '{param}' is not defined|SyntaxError: invalid syntax|a segmentation
    fault|a null pointer exception|ModuleNotFoundError|a merge conflict]?
{buggy}\\n\\nThis [doesn't work|crashes|gives the wrong result]. [Why?|Please fix it.|What's wrong?]
My program [is too slow|uses too much memory|hangs|crashes at night]. It should {task}. [What should I check?|How do I
    find out why?]
= code-test tail=none follow=code
How can I be sure that this works?\\n\\n{buggy}
{pycode}\\n\\n[Which inputs break this?|Write three tests.|What would a tester try?]
Test data for a program that should {task}[, please|].
[Write|Add] [unit tests|a pytest test|test cases|assertions] for this function:\\n\\n{pycode}
[What edge cases should I test for|Which tests would you write for] a function that {taskthird}?
How do I [mock a function|test an exception|measure coverage|run one test|skip a test] [with pytest|in {proglang}]?
= code-translate tail=none follow=code
I know {proglang} but not {proglang2}. How would I write this there?\\n\\n{othercode}
From Python to {proglang}, please:\\n\\n{buggy}
[Is there|Do you know] a shorter way to write `{onelinecode}`?
Port to {proglang}: {onelinecode}
[Translate|Convert|Port|Rewrite] this [Python |]code [to|in] {proglang}:\\n\\n{pycode}
What is the {proglang} equivalent of `{onelinecode}`?
[Rewrite this as|Turn this into] [a list comprehension|a generator|a class|a recursive function|a loop]:\\n\\n{buggy}
= shell tail=none follow=code
[What is the|Give me a|Which] [Linux |shell |bash ][command|one-liner] [to|that can] {shelltask}[?|.]
[How do I|Bash: how to] {shelltask} [from the command line|in the terminal|]?
[What does|Explain] the command `{shellcommand}`[ do|]?
Write a [bash script|shell script|cron job|Makefile] [to|that can] {shelltask}.
= sql tail=none follow=code
Write [a|an SQL|a SQL] query [to|that can] {sqltask}.
[Given a table|I have a table] {sqltable}. [How do I|Write a query to] {sqltask}?
[Explain|What is] [an inner join|a left join|GROUP BY|a primary key|a foreign key|an index|a
    transaction|normalisation|a subquery|a view] in SQL[.|, with an example.]
[Create|Design] a [database schema|table] for {a company}[ with customers and orders|].
What does this query do? {sqlquery}
= regex tail=none follow=code
[Write|Give me|I need] a regular expression [for|that matches|to find] {regextask}.
[What does|Explain] the regex `{regex}`[ mean| match|].
How do I {regexverb} with regular expressions in {proglang}?
= web tail=code follow=code
[Write|Create] [an HTML page|the HTML and CSS|a React component|a simple web page|a CSS class] for {webthing}.
How do I [center a div|make a button blue|add {webthing}|validate a form|load JSON|handle a click|make a site
    responsive] [in CSS|in JavaScript|with HTML|]?
[Explain|What is] [flexbox|the DOM|a REST API|CORS|a cookie|local storage|a promise|an event listener|a web
    socket|JSON]?
Write a JavaScript function that {taskthird}.
= data-format tail=none follow=code
[Convert|Turn] this [into|to] [JSON|YAML|XML|a Markdown table|CSV]:\\n\\n{csvdata}
{jsondata}\\n\\n[What is the value of the first field?|Is this valid JSON?|Convert this to CSV.|Describe this data in a
    sentence.|Add an email field.]
[Create|Write|Generate] [sample JSON data|a JSON object|a CSV file|a YAML configuration] for {a company}[ with {few}
    entries|].
Which [{s job}|people] in this table are older than {20-60}?\\n\\n{csvdata}
= pseudocode tail=none follow=code
Write pseudocode [for|to] {algorithm}.
[Explain|How does|Describe step by step] {algorithm}[ work|]?
What is the time complexity of {algorithm}?
[Implement|Show me] {algorithm} in {proglang}.
When would you use {algorithm} [and when not|in practice]?
= software-practice tail=prose follow=ask
What is [the difference between a list and a tuple|a pull request|unit testing|continuous
    integration|refactoring|technical debt|a design pattern|dependency injection|a race condition|a deadlock|garbage
    collection|a pointer|a lambda function|an interface|polymorphism|inheritance|a thread|a container|a virtual
    machine|a microservice]?
[Which|What] programming language should I learn for [data analysis|web sites|games|embedded systems|mobile
    apps|automation]?
How do I [undo a commit|create a branch|resolve a merge conflict|rename a branch|clone a repository|stash
    changes|squash commits] in git?
[Give me|List] {few} [project ideas for {proglang} beginners|best practices in {proglang}|common mistakes in
    {proglang}|{proglang} interview questions].
[Write|Suggest] a commit message for [a fix of a crash|a new feature to {task}|a faster search|updated documentation].
= spreadsheet tail=none follow=code
[What is the|Which] [Excel|spreadsheet|Google Sheets] formula [to|can] [sum a column|count cells with "{noun}"|find
    duplicates|look up a price|split a name in two|calculate an average|round to two digits|add {5-30} days to a date]?
How do I [freeze a row|make a pivot table|make a bar chart|sort by two columns|lock a cell|remove empty rows] in a
    spreadsheet?
[Make|Draft] a spreadsheet layout for [tracking {hobby}|a household budget|{a event}|the stock of {a company}].
= maths-code tail=code follow=code
[Write|Give me] [a program|Python code|{a proglang} program] that [prints the first {5-50} multiples of {2-12}|adds the
    numbers from {1-9} to {50-900}|checks if {100-999} is a palindrome|prints a triangle of {3-12} rows|simulates
    {10-999} dice rolls|converts {2-90} degrees to Fahrenheit|counts down from {5-60}].
What does `{pyexpression}` [return|evaluate to|print] in Python?
""")
