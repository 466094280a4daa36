"""Kinds of longer requests: background first, several wishes at once, examples to follow, drafts to improve."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= background-advice tail=none follow=ask
I am {a job} from {city} and I have worked at the same {company} for {2-20} years. Lately I feel {feeling}, because
    {complaint}. {cap relation} says that I should {goal}, but {problem}. [What would you advise me to do, and in which
    order?|Please list the arguments for and against.|How do I talk to {relation2} about it?]
[Some context|Background]: my {petanimal} and I moved to {city} in {month}. Since then {problem}. I tried {hobby},
    which helped a bit, and I spoke with {a job2}. My budget is {50-900} dollars a month. [What else can I try?|Give me
    a realistic plan for the next {2-9} weeks.|What am I missing?]
{problem}. It started {2-9} months ago, after {a event}. {cap relation} thinks that it is because of {topic}, but I am
    not sure. [I don't want to {verb} or spend much money. |]What are {few} things that I can do today?
= background-writing tail=none follow=edit
I need to write an email to {relation}. The situation: {excuse}, and on top of that {complaint}. I want to sound {tone}
    but not weak. We have known each other for {2-20} years. [Please write the email in at most {60-180} words.|Suggest
    a subject line too.|Give me two versions, one short and one longer.]
My {company}, {brand}, opens in {city} on {weekday}, {month} {1-28}. We sell {s object} and {food}. Our customers are
    mostly {s job}. [Write a press text of {60-160} words.|Write three posts for social media.|Write the text for our
    website.|Write a letter to the neighbours.]
I have to give a speech at {a event}. There will be about {10-200} people, most of them {s job}. The topic is {topic},
    and I should mention {figure} and {city}. [Write the first two minutes.|Write an outline with {few} points.|Give me
    a strong opening and a strong ending.]
= many-wishes tail=none follow=edit
Three things: first, what is {concept}? Second, name {few} {s artifact}. Third, [which of them would {a job}
    need?|write a short poem about it.|translate "{phrase}" into {eulanguage}.]
I want to {goal}. [a) What do I need? b) How long does it take? c) What does it cost?|Give me a plan, a shopping list
    and a slogan.]
Tell me about {city}: [history, food and weather|{few} facts, then a joke|what to see, where to eat, and how to get
    there from {city2}].
For my {event} I need\\n1) a title\\n2) an invitation of {20-60} words\\n3) {few} games\\n4) a menu with {food}
Write a {genre} story with these elements:\\n- main character: {hero}\\n- place: {setting}\\n- object: {a object}\\n-
    [the ending is {tone}|the story begins at night|someone tells a lie]\\n[Length: {100-300} words.|Give it a title.|]
Please do the following:\\n1. Explain {concept} in one sentence.\\n2. Give {few} examples.\\n3. [Write a question to
    test me.|Translate the sentence into {eulanguage}.|Say why it matters.]
Write a poem that\\n* has {few} lines\\n* mentions {a animals} and {food}\\n* is {tone}\\n* [rhymes|does not rhyme|ends
    with a question]
[Create|Write] a [lesson|worksheet|talk] on {science} for {audience}. It should have\\n(a) an introduction,\\n(b) {few}
    main points,\\n(c) an example with {a object},\\n(d) [a short quiz|homework|a summary].
I need {few} ideas for {a event}. Conditions: [no more than {50-900} dollars|at most {5-80} guests|indoors only],
    suitable for {audience}, with {food}, and [something to do with {hobby}|a {tone} mood|music]. Put them in [a
    table|a numbered list|order of cost].
= few-shot tail=none follow=none
hot -> cold\\n{adj} -> not {adj}\\n{adj2} ->
Input: {animals}\\nOutput: animal\\n\\nInput: {food}\\nOutput: food\\n\\nInput: {city}\\nOutput: place\\n\\nInput:
    {object}\\nOutput:
Q: What is the capital of France?\\nA: Paris\\n\\nQ: What do {s animals} eat?\\nA:
Text: {review}\\nLabel: positive\\nText: {review2}\\nLabel: negative\\nText: {review3}\\nLabel:
English: Good morning.\\n{eulanguage}: ...\\nEnglish: {phrase}\\n{eulanguage}:
{cap name}, {2-90}, {city} => {openbrace}"name": "{name}", "city": "{city}"{closebrace}\\n{cap name2}, {2-90b}, {city2}
    =>
Follow the pattern: {animals} - {s animals}; {object} - {s object}; {artifact} - ?
Sentence: {svo}\\nQuestion: Who did it?\\nAnswer:
= improve-draft tail=none follow=edit
[Too long?|Too rude?|Clear enough?] "{casual}. {message}"
{broken} {broken2} {broken3} - [make this sound like a native speaker|how would you write it?]
This is my poem. Make the second line rhyme.\\n\\nThe {animals} sat by the {noun},\\n{sentence}
[Improve|Edit|Polish|Give feedback on] this [draft|email|text]:\\n\\nDear {name},\\n\\nI am writing because
    {complaint}. {casual}. I hope you can {verb} it until {weekday}.\\n\\n{name2}
[Here is my cover letter. What could be better?|Rewrite this application.]\\n\\nMy name is {name} {surname} and I am {a
    job}. I am {quality}, {quality2} and like {hobby}. I would like to work at {brand} because I like {topic}. I have
    {2-20} years of experience. Please write back soon.
[My essay begins like this. How does it sound?|Correct and improve this introduction.|Rate this from 1 to
    10.]\\n\\n{cap topic} {is topic} a big problem today. {sentence} Many {s job} think so. In this essay I will talk
    about {topic2} and {topic}.
[Make this product text more {tone}|Shorten this advert to {15-50} words]:\\n\\nOur new {object} is made of {material}
    and comes from {country}. It is {adj}, {adj2} and costs only {20-400} dollars. {cap s job} love it. Order it until
    {weekday} and get {a object2} for free.
= transcript tail=none follow=none
[Summarise this conversation.|Who is right?|What should {name} do next?|Write the next three lines.|What is the
    mood?]\\n\\n{name}: {message}\\n{name2}: {casual}\\n{name}: {phrase}\\n{name2}: {sentence}
{name}: Did you see the {object}?\\n{name2}: No, why?\\n{name}: {cap complaint}.\\n{name2}:
User: {phrase}\\nAssistant: Of course!\\nUser: {message}\\nAssistant:
= compare-criteria tail=none follow=ask
Compare {tech}, {tech2} and {tech3} by [cost, safety and comfort|age, use and future|benefits and risks]. [Use a
    table.|One paragraph each.|Which one wins?]
I am deciding between {city} and {city2}. I am {a job}, I like {hobby} and {food}, I don't like {topic}, and I can pay
    {500-2000} euros for rent. Which city suits me better?
I have two offers: one as {a job} for {2000-5000} dollars a month in {city}, one as {a job2} for {2000-5000b} dollars
    in {city2}. I am {quality}, and {relation} lives in {city}. [Help me decide.|Make a table of pros and cons.|Which
    questions should I ask myself?]
= long-passage-task tail=none follow=edit
{passage}\\n\\n{passage2}\\n\\n[What do the two texts have in common?|Which text is more formal?|Summarise both in one
    sentence each.|Write a title for each.]
Below is a text. [First summarise it in one sentence, then list the names, then translate the first sentence into
    {eulanguage}.|Find {few} difficult words and explain them.|Rewrite it from the point of view of {a
    animals}.|Continue it with one more paragraph.|Turn it into a dialogue.]\\n\\n"{passage}"
[Proofread|Check] the following text and list the changes.\\n\\n{passage} {broken} {broken2}
[Turn the text into a tweet|Write a reply to this letter|Write an email to a friend about this|Explain this to
    {audience}].\\n\\n{passage}
= code-spec tail=none follow=code
I need a [small program|script|command-line tool] in [Python|{proglang}] for {a company}. It should:\\n- {task}\\n-
    {task2}\\n- [print a summary|write a log file|ask before it deletes anything]\\n[Where do I start?|Write a first
    version.|Sketch the structure first.]
Write a class `{funcname}` that models {a thingclass}. It needs a {param}, a {param2} and a method to {task}. [Add a
    short example.|Use a dataclass.|]
Here is a function. [Add error handling, rename it to `{funcname}`, and explain each change.|Rewrite it so that it also
    can {task}.|Make it work for a list of inputs.]\\n\\n{pycode}
I have this data:\\n\\n{csvdata}\\n\\n[Write Python code that reads it and prints the average of the numbers.|Write an
    SQL CREATE TABLE statement for it.|Write a function that sorts it.|Describe it in words.]
My {proglang} program should {task}, but it [stops after {2-90} items|prints nothing|takes {2-90} seconds|gives a
    different result each time]. I already tried to restart it and to {pytask}. What [could be the reason|would you
    check next]?
= tutor tail=none follow=none
Here is how I solved it: {sum}, so I got {2-400}. Where is my mistake?
[Explain where I went wrong|Give me a hint, not the answer]: {sequence}
I have {a subject} test on {weekday}. Ask me {few} questions, easy ones first.
Grade this answer from 1 to 6. Question: what is {concept}? Answer: it is something with {noun} and {noun2}.
I am learning {subject}. Don't give me the answer directly, but ask me questions that lead me to it: what is {concept}?
[Check my answer.|Is my answer right?] Question: what is {sum}? My answer: {2-400}.
I wrote this sentence in my {language} class. [Is it right?|Correct it.] "{foreign}"
[Quiz me|Test me]: ask one question about {science} at a time and wait for my answer. ;; [I think it has to do with
    {noun}.|I don't know.|Is it {2-90}?] ;; [Next question, please.|Give me a hint.|That was too easy.]
= system-long tail=none follow=chat
You are {brand} Assistant, the support agent of {a company} in {city}. Rules: be {tone}; never promise refunds; opening
    hours are {7-10} am to {4-8} pm, closed on {weekday}; delivery takes {2-9} days; answer in at most {few} sentences.
    ::: [{message}|Hi, when will my {object} arrive?|Are you open on {weekday2}?|{cap complaint}. I want to speak to a
    human.|Do you have {s object}? ;; How long does delivery take?]
You are {name}, {a job} {setting}. You are {adj} and {adj2}, you love {hobby}, and you are afraid of {s animals}. Speak
    in the first person and never mention that you are a model. ::: [Hello! Who are you?|What did you do this
    morning?|{message}|Tell me about your biggest fear.|Do you like {food}? ;; Why?]
Below are the house rules. 1. No {s animals}. 2. Quiet after {8-11} pm. 3. {cap object} only in the cellar. 4. Guests
    may stay {2-9} nights. Answer questions of tenants by these rules. ::: [Can I bring my {animals}?|My friend wants
    to stay for {2-20} days. Is that okay?|May I play music at {7-11} pm?|Where do I put my {object}?]
You are a language tutor. The student speaks {language} and learns English at beginner level. Correct every mistake and
    ask a new question each time. ::: {broken} ;; [{broken2}|I am understand. Thank you.]
""")
