"""Kinds of the working day: reports, support, marketing, software documents, human resources, scripts and surveys."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= customer-support tail=write follow=edit
A customer writes: "{message}" [Write a reply from {brand}.|How should support answer?|Answer in a {tone} way and offer
    a solution.]
[Write|Draft] a [support reply|canned response|chat answer] for a customer of {a company} [whose {object} broke|who
    wants a refund|who forgot the password|who is {feeling}].
[Write|Create] a phone script for {a company}: [greeting, questions, closing|a caller complains that
    {complaint}|selling {a object}].
= faq tail=list follow=edit
[Write|Create|Draft] [a FAQ|{few} frequently asked questions] for {a company}[ with answers| about {topic}|].
[Write|Draft] [a refund policy|terms of use|a privacy notice|house rules|a code of conduct|opening hours sign] for {a
    company}.
What questions do customers ask {a company}[ most often|]?
= resignation tail=write follow=edit
Write a [short |{tone} |]resignation letter: I am {a job} [at {a company}|] and [found a new job|move to {city}|want to
    {goal}].
How do I tell my boss that I [quit|want to work from home|need a raise|am {feeling}|take {2-9} months off]?
[Write a farewell email|Say goodbye] to my colleagues after {2-20} years as {a job}.
= reference-letter tail=write follow=edit
Write a [letter of recommendation|reference|performance review] for {name} {surname}, {a job} who is {quality} and
    {quality2}.
[Give|Write] feedback for {name}: [always late but {quality}|{quality}, could be more {quality2}|did well at the
    {event}].
[Praise|Thank] my team for [the {event}|hard work on {topic}|{2-20} years together].
= elevator-pitch tail=write follow=edit
[Write|Give me] a [30-second|one-minute|two-sentence] [pitch|elevator pitch] for {a company}[ called {brand}| that uses
    {tech}|].
[Pitch|Sell] [me |]an app [for {s job}|that helps people to {goal}|about {hobby}].
Convince an investor to put {20-900} thousand dollars into {brand}, {a company} in {city}.
= marketing tail=list follow=edit
[Who is the target group for|How would you market|Write a marketing plan for|Suggest a price for] {a adj} {object}?
[Write|Suggest] {few} [email subject lines|call-to-action buttons|ad texts|newsletter topics] for {a company}.
[Write|Draft] a newsletter of {a company} for {month}[: new {s object}, {a event}, a discount of {5-50}%|].
[Create|Describe] a [buyer persona|customer journey] for {a company}.
= report tail=write follow=edit
Write a [short |one-page |][report|status report|memo|executive summary] on {topic}[ for {a company}|].
[Write up|Report] these figures in a paragraph: sales {month} {100-900}, {month2} {100-900b}, {month3} {100-900c}.
[Describe the trend|What do the numbers say|Comment on the data]: {month}: {10-90} visitors, {month2}: {10-90b},
    {month3}: {10-90c}.
[Draft|Outline] a report about a visit to {a company} in {city}.
= user-story tail=list follow=edit
Write {few} user stories for [an app about {hobby}|the website of {a company}|{a thingclass} program].
[List|Write] [acceptance criteria|requirements|test cases] for [a login page|a search box|{a webthing}|a shopping
    cart|a booking form].
[Write|Draft] a [bug report|feature request|release note|changelog entry]: [the {object} page crashes|search ignores
    {noun}|{taskthird}|the app is slow on {weekday}s].
= api-docs tail=none follow=code
[Document|Describe|Design] a REST API for [{a thingclass}|{a company}|{hobby}][ with {few} endpoints|].
[Write|Show] [an example request and response|the JSON body|a curl command] for an endpoint that {taskthird}.
[What does HTTP status code|What is the meaning of] [200|201|204|301|302|304|400|401|403|404|409|418|429|500|502|503]
    [mean|in HTTP]?
= devops tail=none follow=code
[Write|Show me] a [Dockerfile|docker-compose file|GitHub workflow|systemd unit|nginx configuration|.gitignore|Makefile]
    for [{a proglang} project|a Python web app|{a thingclass} service|a static site|a database].
[What is|How do I use|Why do people use] [Docker|Kubernetes|Terraform|Ansible|a reverse proxy|a load balancer|a staging
    server|log rotation|a message queue|monitoring|blue-green deployment|SSH keys]?
My [server|container|build|deployment|website] [is slow|does not start|runs out of disk|shows error {400-504}|stops
    after {2-50} minutes]. [How do I find the cause?|What should I check first?]
= markup tail=none follow=code
[Turn|Make] this [into a Markdown table|into HTML|into a LaTeX list]: {name} {2-90}, {name2} {2-90b}, {name3} {2-90c}
What does [`**{noun}**`|`<h2>{noun}</h2>`|`\\textbf{openbrace}{noun}{closebrace}`|`<em>{noun}</em>`] look like?
What does `{openbracket}{noun}{closebracket}(https://example.com)` look like?
[Write|Show] [this|the following] as [Markdown|HTML|LaTeX]: a [heading|title] "{cap topic}", a list of {food}, {food2}
    and {food3}, and a link to example.com.
How do I [write a fraction|make a table|insert an image|make text bold|add a footnote|write a matrix|number sections]
    in [LaTeX|Markdown|HTML]?
[Write|Give me] a Markdown [README|checklist|meeting template|CV template|recipe card] for {a thingclass} [project|].
Convert to HTML: # {cap topic}\\n\\n* {food}\\n* {food2}\\n\\n**{cap brand}** in {city}
= config tail=none follow=code
[Write|Show] a [YAML|TOML|JSON] configuration for {a thingclass} service with [port {1000-9000}|a database|log
    level|{few} users|a time-out of {2-90} seconds].
What is wrong with this JSON? {openbrace}"{param}": {1-90}, "{param2}": {openbracket}{1-9}, {10-20},{closebracket}
    {closebrace}
[Explain the difference between|Compare] [YAML and JSON|XML and JSON|TOML and INI|CSV and TSV|HTTP and HTTPS|TCP and
    UDP|IPv4 and IPv6|a compiler and an interpreter|a stack and a queue|SQL and NoSQL|a process and a thread|Git and
    GitHub].
= survey tail=list follow=edit
[Write|Design|Create] [a survey|a questionnaire|{few} survey questions] about {topic}[ for {s job}| with answer
    options|].
Write {few} [interview|poll|feedback] questions for guests of {a event}.
[Make|Write] a personality quiz: which {animals} are you?
= icebreaker tail=list follow=edit
[Give me|Suggest|List] {few} [icebreakers|conversation starters|small talk topics|team games] for {a event}[ with {s
    job}|].
Would you rather {verb} {setting} or {verb2} {setting2}?
Write {few} "would you rather" questions [about {food}|for {audience}|about {topic}].
[Two truths and a lie|Never have I ever]: [make some up about {city}|for {a job}|about {hobby}].
= video-script tail=write follow=edit
Write a [short |]script for a [video|podcast episode|radio show|commercial|tutorial] [about {topic}|on {hobby}|for {a
    company}|explaining {science}].
[Write|Give me] the [intro|outro|first minute|title and description] of a video about {tech}.
[Storyboard|Scene list] for {a 5-60}-second commercial for {a object}[, please|].
= negotiation tail=prose follow=ask
How do I [negotiate|bargain for|ask for] [a raise|a lower rent|a better price for {a object}|a discount|more holiday|a
    refund] [as {a job}|in {country}|]?
I offered {20-400} dollars for {a object}, they want {401-900}. [What should I say?|Is there a compromise?|Write my
    next message.]
[Play|Simulate] a negotiation between {a job} and {a job2} about {a object}.
= career tail=prose follow=ask
What does {a job} do [all day|at work|]?
How do I become {a job}[ in {country}| without a degree| at {30-55}|]?
[Which|What] [jobs|careers] suit someone who is {quality} and likes {hobby}?
How much does {a job} earn [in {country}|]?
What is the difference between {a job} and {a job2}?
What skills does {a job} need?
= job-posting tail=write follow=edit
We need {a job}, part time, {10-30} hours a week, in {city}. [Write the ad.|What should we pay?]
Rewrite this ad so that more people apply: "{cap job} wanted. {cap company}. {city}. Must be {quality}."
Write a job [posting|description|advert] for {a job} at {brand}, {a company} in {city}. Include [tasks, requirements
    and benefits|salary and hours|how to apply].
[List|What are] the {few} main [tasks|responsibilities|requirements] of {a job}[?|.]
""")
