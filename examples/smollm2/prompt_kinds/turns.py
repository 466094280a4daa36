"""What may be added to a request: a wish about its form, later turns, a system message, a greeting or thanks."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import phrases

TAILS = {
    "prose": phrases("""
Keep it short.; Answer in [one sentence|two sentences|three sentences|one paragraph].; Use simple words.; Explain it to
{audience}.;
In about {40-200} words.; Use bullet points.; Give [an example|two examples|an everyday example].; Please be
[precise|detailed|brief].;
Answer like {a role}.; Start with a one-line summary.; No jargon, please.; Use an analogy.; Answer as a numbered list.;
Step by step.;
Be [{tone}|honest].; End with a question.; What are the main points?; Write it as a short dialogue.; Answer in
{eulanguage}.; Why?"""),
    "write": phrases("""
Make it {tone}.; Make it {tone} and {tone2}.; Use at most {50-250} words.; About {60-300} words.; Include the word
"{noun}".;
Mention {city}.; Write in the first person.; Use the present tense.; It should end with a surprise.; No longer than
{few} sentences.;
The reader is {audience}.; Use short sentences.; Include a dialogue.; Add a title.; Write it like {a role} would.; Use
{few} paragraphs.;
Do not use the word "{noun}".; Include {a animals}.; Sign it with {name}.; Use headings.; Avoid clichés."""),
    "short": phrases("""
In one sentence.; Keep it simple.; Please answer briefly.; Use at most {8-40} words.; Give an example."""),
    "list": phrases("""
Use a numbered list.; Use bullet points.; Only {few} items, please.; One line each.; With a short explanation for
each.; As a table.;
In order of importance.; Keep it short.; Make it {tone}.; I have little time.; For {audience}.; As a checklist.; Be
specific."""),
    "code": phrases("""
Add comments.; Explain how it works.; Only the code, please.; Keep it short.; Use type hints.; Handle errors.; With an
example call.;
Do not use any library.; Include a test.; Explain the complexity.; Write it for beginners."""),
}  # fmt: skip

FOLLOW_UPS = {
    "ask": phrases("""
Why?; Can you give me an example?; Tell me more.; Make it shorter.; Explain it to {audience}.; What do you mean by
that?; Are you sure?;
And what about {topic}?; How do you know?; Thanks! What else should I know?; In one sentence, please.; Now as bullet
points.;
Summarise that.; I don't understand. Can you say it more simply?; What is the most important point?; Now in
{eulanguage}.; Interesting. Go on.;
Can you compare that to {noun}?; Thank you!; Is that always true?; Which one would you choose?; How does it affect {a
job}?; Give me a quiz about this."""),
    "edit": phrases("""
Make it shorter.; Make it longer.; More {tone}, please.; Now in {eulanguage}.; Add {a animals}.; Change the ending.;
Rewrite it for {audience}.;
I like it. Give it a title.; Another one.; Less formal.; Use simpler words.; Add an example.; Too long! One sentence
only.; Now as a poem.;
Can you make it funnier?; Mention {city}.; Replace the name with {name}.; Great, thanks!; Give me {few} alternatives.;
Write it as a list.; Start differently."""),
    "chat": phrases("""
Thanks!; Why?; Are you sure?; How did you get that?; Explain, please.; OK. Another one?; Haha.; Can you show the
steps?; Really?; And in {eulanguage}?;
Now try it with {noun}.; Give me a harder one.; What do you mean?; Tell me more.; Let's talk about {topic} instead.;
That is wrong.; Good. Next question: what is {concept}?"""),
    "code": phrases("""
Add comments.; Explain it line by line.; Now in {proglang}.; Can you make it shorter?; What is the time complexity?;
Write a test for it.; It doesn't work.;
How do I run this?; Add error handling.; Rename the variables.; Thanks! Now a version without loops.; Show me an
example.; What does the first line do?"""),
    "translate": phrases("""
And in {eulanguage}?; How do I pronounce it?; Now the same more formally.; Is that correct?; Word by word, please.;
Thanks!"""),
}  # fmt: skip

SYSTEMS = phrases("""
You are a helpful assistant.; You are a helpful, {quality} and {tone} assistant.; You are a concise assistant. Answer
in as few words as possible.;
You are {a tone} teacher.; You are an expert in {subject}.; You are {a job}.; You are {a role}. Answer in character.;
Answer in at most {few} sentences.;
You answer questions for {audience}.; Always answer in a {tone} tone.; You are an assistant of {brand}, {a company}.;
Respond in plain English.;
Use bullet points whenever possible.; You are a patient tutor who explains every step.; Today is {weekday}, {month}
{1-28}. You are a personal assistant.;
You are {name}, {a quality} assistant.; If you do not know the answer, say so.; The user is {a job} from {city}. Be
{tone}.; Never use more than {20-120} words.;
You are a writing assistant. Write in a {tone} style.; You are an AI assistant that helps people with {hobby} and other
topics.""")

PREFACES = phrases("""
I have {2-45} minutes to understand this.; I asked {a job} and got a strange answer, so now I ask you.; Two quick
things before the
question: I live in {country} and I know little about the subject.; {cap relation} laughed when I asked this, but I
mean it.;
It's for a competition in {city}. The best answer wins {a object}.; We talked about {topic} at {a event} and this came
up.;
I want to surprise {relation} with this.; For context: I am {a quality} person who likes {hobby}.;  Suppose you are {a
job}.; Think about it first, then answer.; I'm making a website about {hobby}
and need some text.;
I saw this on the {vehicle} today and keep thinking about it.; My {animals} is asleep on the keyboard, so forgive the
typing.;
I've been {a job} for {2-30} years and still don't know this.; Pretend that it is {1900-2100}.; {cap name} from work
needs this, not me.;
As part of a project about {country}, we collect answers to all kinds of questions.; I'll read your answer aloud at {a
event}.;
Last time your answer was too [long|short|vague|{tone}], so pay attention.; I bet {relation} {10-90} dollars that you
can do this.;
I am {a job}[ from {city}| with little time|].; I'm preparing {a event} and need your help.; I was talking with
{relation} about this yesterday.;
My {subject} teacher asked us to find out about this.; This is for {audience}.; I want to {goal}, so this matters to
me.;
I have tried to find an answer online, but everything I found was too [long|technical|vague].; It's {weekday} evening
and I have to finish
this by tomorrow.; I'm new to this, so please bear with me.; I work at {a company} and my boss wants this by {weekday}.;
I read something about this in {month} and did not understand it.; {cap relation} and I disagree about this, and you
shall decide.;
I am {2-90} years old and [still|always] curious. I feel a bit {feeling} today, so be {tone} with me.; Let me give you
some
background: I live in {city}, I am {a job}, and I like {hobby}.; You helped me with something similar last week. Here
is the next one.;
English is not my first language. Please read carefully before you answer.; I'm writing {a genre} novel and need this
for one of my characters, {a job}.;
We are a small {company} with {2-40} employees. We are planning {a event} in {month}, and I am responsible for the
texts.""")

GREETINGS = phrases("""
Hi!; Hello,; Hey,; Hi there.; Good morning.; Quick question:; Hello!; Please help:; I need help.; Question:; OK,;
So,""")
THANKS = phrases(
    "Thanks!; Thank you.; Thanks in advance.; Please.; It's urgent.; Cheers; I'd appreciate it.; Take your time."
)
