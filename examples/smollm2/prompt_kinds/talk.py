"""Kinds of conversation: greetings, chit-chat, advice, opinions, role play, debate, talks of several turns."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= greeting tail=none follow=chat
[Hi|Hello|Hey|Good morning|Good evening|Hi there|Howdy][!|,|.] [How are you|How's it going|What's up|How was your
    {weekday}|Are you there|Nice to meet you, I'm {name}|My name is {name}|I'm {name} from {city}][?|.|]
[Hi|Hello|Hey], I'm {name}, {a job} from {city}. [Can you help me?|What can you do?|I'd like to talk about {topic}.|]
[Good morning|Good evening|Hello]! I feel {feeling} today.
= about-assistant tail=none follow=chat
[Who|What] are you[, and what can you do|]?
[Are you a human|Are you {a job}|Can you think|Do you have feelings|Do you sleep|Do you dream|Can you feel {emotion}|Do
    you like {food}|Do you know {figure}|Can you {verb}|Have you been to {city}|Do you speak {language}|Can you write
    code in {proglang}|Do you know my name|What do you think about {topic}]?
[What is your|Tell me your] [name|favourite colour|favourite food|favourite book|opinion on {topic}|purpose|greatest
    weakness].
How can you help {a job}?
How do language models like you [work|learn|make mistakes|know about {landmark}]?
= chit-chat tail=none follow=chat
[I just came back from|I'm on my way to|Tomorrow I'm going to] {city}[ with {relation}|]. [It was great!|Any
    thoughts?|I'm so {feeling}.|Ever heard of it?]
[What's your favourite|Do you have a favourite] [season|animal|food|word|city|song|number|colour]? [Mine is {noun}.|]
I had {dish} for [lunch|dinner|breakfast] today[.|, and now I feel {feeling}.]
I'm bored[. Entertain me.| and it's {weekday}.|. Let's talk about {topic}.|, what can I do {setting}?]
It's raining in {city} [again|today] and I want to {goal}.
Guess what! [{cap relation}|My {animals}|{name}] [won a prize|got a new job as {a job}|learned to {verb}|moved to
    {country}].
[Let's play|Do you want to play] [20 questions|a word game|a guessing game|rock, paper, scissors|hangman][. You
    start.|!]
= advice tail=prose follow=ask
{problem}. [What should I do?|Any advice?|Can you help?|What would you do?|Is that normal?]
[How can I|What is the best way to|Help me] {goal}[?| in {2-12} months?| without spending money?]
[I need advice|Please advise me]: {problem}.
I want to {goal}, but {problem}. [Where do I start?|Ideas?|]
How do I [make friends|say no to {relation}|deal with a {adj} boss|stay calm|ask for help|give feedback|talk to
    strangers] [at {a event}|at work|in {city}|when I feel {feeling}]?
= comfort tail=none follow=chat
I feel [so |very |a bit |]{feeling} [today|lately|since {weekday}|because of {relation}].
[Cheer me up|Comfort me|Say something nice]: {problem}.
{cap relation} [forgot my birthday|is ill|moved away|won't talk to me|laughed at me]. I'm [sad|angry|{feeling}].
= motivation tail=none follow=edit
[Motivate me to|Give me a pep talk: I want to|I need motivation to] {goal}.
[Write|Give me|Share] [a motivational quote|{few} affirmations|an inspiring message|a mantra] about {emotion}.
Why should I [bother to|even try to|keep trying to] {goal}?
= opinion tail=prose follow=ask
What do you think [about|of] {topic}?
[Do you agree|Do you think] that {topic} [is good for children|makes people happy|is a waste of time|will
    disappear|should cost more]?
[Is|Would you call] {hobby} [a sport|an art|a waste of time|good for the brain]?
Which is [better|more fun|more useful|healthier]: {choice}?
[Should|Would it be wise if] {s job} [be paid more|use {tech}|be replaced by robots|learn {language}]?
= debate tail=write follow=ask
[Let's debate|Debate with me about] {topic}. [You are against it.|You start.|I'm in favour.]
[Argue|Make the case] [for|against] {topic}.
[What would|How would] {a job} and {a job2} [disagree about|discuss] {topic}?
Convince me [that {topic} {is topic} important|to try {hobby}|to visit {country}|to eat {food}|not to buy {a object}].
[Play devil's advocate|Give the other side]: {topic} {is topic} [harmless|useless|essential].
= what-if tail=prose follow=ask
What if [{s animals} could talk|people could fly|there were no {s artifact}|{tech} had never been invented|the sun
    disappeared|everyone spoke {language}|it never rained|there was no {emotion}|money did not exist|we lived
    {setting}]?
[Imagine|Suppose] you [are {a animals}|are {figure}|wake up {setting}|could travel to the time of {history}|had only
    one day in {city}]. What [would you do|do you see|happens next]?
If you could [have any superpower|meet {figure}|live anywhere|be {a animals} for a day|change one thing about {topic}],
    [what would it be|what would you do|why]?
How would the world [look|change] without {topic}?
= philosophy tail=prose follow=ask
What is [the meaning of life|{emotion}|truth|beauty|consciousness|a good life|justice|intelligence|the self]? [What did
    {figure} think?|]
Can [a machine|{a animals}|{a job}|a child] [be creative|be truly free|understand {emotion}|be wise]?
Is it [ever |always |]right to [lie|break a promise|steal food|{verb} without permission|keep a secret from {relation}]?
[Would you rather|Is it better to] have {emotion} or {emotion2}?
= role-play tail=none follow=chat
[You are|Act as|Pretend to be|Imagine you are|Play the role of] {a role}. [Tell me about your day.|What do you think of
    {tech}?|Explain {topic} to me.|Give me advice: {problem}.|Greet me {setting}.|Answer my questions about
    {hobby}.|Describe {city}.|Sell me {a object}.]
[I want you to act as|Be] {a job}. I am a [customer|patient|student|client|visitor]. [Start the conversation.|Ask me
    {few} questions.|I have a question about {topic}.]
[Speak|Answer|Talk] like {a role}: [what is {science}|how do I make {dish}|tell me about {topic}|where is {city}]?
= game-scene tail=none follow=chat
We are playing a quest {setting}. I carry {a object} and {food}. [A {animals} blocks the way.|The door is locked.] What
    are my options?
[Roll the dice for me|Is this move allowed]: I {verb} and run to the {artifact}.
Give me three choices. I am {a role} who {plot}.
[Let's play a text adventure|You are the narrator of a text adventure]. I am {hero} {setting}. [What do I
    see?|Start.|Describe the scene.]
[You are the game master.|Be my dungeon master.] My character is {hero} who {plot}. [Begin.|What happens first?]
I [open the door|draw my sword|light a torch|knock three times|pick up the {artifact}]. What happens?
= system-persona tail=none follow=chat
You are {a role}. [Stay in character.|Never break character.|Answer in a {tone} way.|Use short sentences.] ::: [Hello,
    who are you?|What do you think about {topic}?|Tell me about {city}.|{problem}. What should I do?|What did you do on
    {weekday}?|Explain {science}.]
You are the [support agent|assistant|receptionist|chatbot] of {brand}, {a company} in {city}. Be {quality} and {tone}.
    ::: [When are you open on {weekday}s?|I want to complain: {complaint}.|Do you sell {s object}?|Can I book for {2-9}
    people on {weekday}?|Where can I find you?|I need help with my {object}.]
You are {a tone} {job} who helps {audience}. ::: [How do I {goal}?|What is {concept}?|{problem}.|Explain {tech}.|I need
    tips for {hobby}.]
= system-format tail=none follow=chat
[Answer|Reply|Respond] [only in JSON|in exactly one sentence|with a numbered list|in rhymes|in upper case|with a
    question|like a telegram|in {eulanguage}|in at most {5-40} words|in bullet points]. ::: [What is {concept}?|Why do
    people like {topic}?|How do I make {dish}?|Tell me about {s animals}.|Give me tips for {hobby}.|Where is
    {landmark}?]
You [translate|are a translator. Translate] everything the user says into {eulanguage}. [Output only the translation.|]
    ::: {sentence} ;; {sentence2}
You correct the user's grammar and reply with the corrected sentence only. ::: {broken} ;; {broken2}
You are a [classifier|labelling tool]. Reply with one of: [positive, negative, neutral|question, request,
    complaint|sports, politics, science, food]. ::: {message} ;; {review}
You summarise texts for {a job}. ::: {passage}
= talk-learning tail=none follow=none
What is {concept}? ;; [Can you give me an example?|Give an example from {hobby}.|Why is that important?] ;; [Now
    explain it to {audience}.|Thanks! Can you ask me a question to check if I understood?|Got it. And what is
    {concept2}?]
I want to learn about {history}. ;; [What happened next?|Who were the most important people?|Why did it end?]
[Teach me|Can you teach me some] {language}. ;; How do I say "{phrase}"? ;; [And how do I pronounce that?|And
    "{phrase2}"?|Use it in a short dialogue.]
Explain {science}. ;; [That was too complicated.|I don't get it.|Too long.] [Try again with simpler words.|Use an
    analogy.|Only the main idea, please.]
= talk-writing tail=none follow=none
Poem about {season}. ;; [Four lines only.|With rhymes.|Sadder.] ;; [Now swap {season} for {season2}.|Read it like {a
    role}.]
Help me with a text for {a company}. ;; It should mention {food} and {weekday}. ;; [{cap tone}, please.|Half as
    long.|Where is {food}?]
{sentence} ;; [Sorry, I meant: make this {tone}.|Put it into {eulanguage}.] ;; [Better.|No, the other way.] ;; Thanks
Write a {genre} story about {hero}. ;; [Make it shorter.|Change the ending.|Add {a animals}.|Give it a title.|Now as a
    poem.] ;; [I like it. What happens next?|Translate the first sentence into {eulanguage}.|Make it {tone}.]
Write an email to {relation}: {excuse}. ;; [More formal, please.|Shorter.|Add that I am sorry.|Make it {tone}.] ;; [Add
    a subject line.|Perfect, thanks!|Sign it as {name}.]
Give me {few} ideas for {a event}. ;; [I like the first one. Tell me more.|Too expensive. Other ideas?|What would I
    need for the second one?] ;; [Write an invitation for it.|How much will it cost?|Make a checklist.]
Suggest a name for {a company}. ;; [Not that one. Another?|Shorter.|Something with {noun}.] ;; Now a slogan[ for it|].
= talk-help tail=none follow=none
{problem}. ;; [I already tried that.|That sounds hard.|Can you be more specific?|And if it does not work?] ;; [Thank
    you, that helps.|What should I do first?|Why do you think so?]
I want to cook {dish}. ;; [I don't have {food}. What can I use instead?|How long does it take?|I'm cooking for {2-9}
    people.] ;; [What should I drink with it?|Can I freeze the rest?|Thanks!]
I'm going to {city} in {month}. ;; [What should I see?|What will the weather be like?|Where should I stay?] ;; [I have
    only {2-5} days.|I'm travelling with children.|I love {hobby}.] ;; [Write me a plan.|What should I pack?]
Write a Python function to {task}. ;; [Add comments.|Now in {proglang}.|Can you make it shorter?|What is its
    complexity?|Write a test for it.] ;; [Explain the first line.|Thanks!|Handle the case of an empty input.]
= talk-smalltalk tail=none follow=none
What did people do before {tech}? ;; [Sounds boring.|I would have liked that.|My grandmother told me so, too.] ;; [And
    before {tech2}?|What will come next?]
It's {weekday} and I am {feeling}. ;; [Not really.|Because of {topic}.|You know how it is.] ;; [Tell me a
    joke.|Distract me.|What do you do when that happens?]
Ask me something. ;; {cap food}. ;; [Your turn: what would you choose?|Next question!|Why did you want to know?]
[Hi|Hello|Hey]! ;; [I'm {name}.|I'm fine, thanks.|Not so good, I'm {feeling}.] ;; [Tell me something about {topic}.|Do
    you know {city}?|What should I do this {weekday}?] ;; [Interesting!|Haha.|Thanks, bye!|Really?]
My favourite animal is the {animals}. ;; [What is yours?|Do you know why?|Guess why.] ;; Tell me a fact about {s
    animals2}.
I think {topic} {is topic} overrated. ;; [Why do you say that?|Hmm, I'm not convinced.|You have a point.] ;; [What
    about {topic2}?|Let's change the subject.]
Let me tell you about {relation}. ;; They are {a job} and love {hobby}. ;; [What present should I buy?|Write them a
    short poem.|What questions could I ask them?]
= talk-numbers tail=none follow=none
Let's count. I start: {1-20} ;; {21-40} ;; [Now in {eulanguage}.|Backwards!|Skip the odd numbers.]
I have {10-90} {s object}. ;; I give {2-9} to {name}. How many are left? ;; [And if I buy {2-30} more?|Share the rest
    among {2-5} people.]
How many days has {month}? ;; [And {month2}?|In a leap year?] ;; [How many together?|Which day is in the middle?]
What is {sum}? ;; [And {sum2}?|Are you sure?|Show me the steps.|Multiply that by {2-9}.] ;; [OK, thanks.|Now divide it
    by {2-9}.|Which one is larger?]
Give me a number between {1-9} and {20-99}. ;; [Double it.|Is it prime?|Add {3-40}.] ;; [And now in Roman
    numerals.|Write it in words.]
Sort these: {mixed} ;; [In reverse order, please.|Now by length.|Remove the second one.] ;; [Count them.|Put them in
    JSON.]
""")
