"""Kinds that ask for knowledge: explain, define, compare, why and how, history, science, geography, health."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= explain-science tail=prose follow=ask
[Explain|Can you explain|Please explain|Could you explain to me] [what {science} {is science} and how it
    works|{science}].
How [{do science} {science} work|do people explain {science}|would you describe {science}]?
I'm [studying for a test|doing homework] on {science}. [What are the key points|What should I remember|Where do I
    start]?
What is the role of {science} in [nature|everyday life|modern science|our lives]?
[Give|Write] [a short|a clear|a detailed|an easy] explanation of {science} [for {audience}|].
[In simple words, what is|In one paragraph, describe|Briefly, what is meant by] {science}?
Why is {science} important?
What [would happen if there were no|did people believe about|do scientists still not know about] {science}?
= explain-technology tail=prose follow=ask
How {do tech} {tech} work?
[Explain|Describe] {tech} to {audience}.
What [are the benefits of|problems can come with|is the idea behind|should I know about] {tech}?
[Who invented|When did people start using|What came before] {tech}?
I've never really understood {tech}. [Can you help?|Could you break it down for me?|Start from the beginning, please.]
How {has tech} {tech} changed [the way we work|daily life|communication|business|education]?
What will {tech} look like in [ten|twenty|fifty] years?
= explain-concept tail=prose follow=ask
What is {concept}?
[Define|Explain|Describe|Clarify] {concept} [with an example|in your own words|in plain language|to {audience}].
[What does it mean when people talk about|What exactly is meant by|Can you tell me about] {concept}?
[Give me|I need] an example of {concept} [from everyday life|from history|that is easy to remember|].
How would you [teach|explain] {concept} to {audience}?
What is the difference between {concept} and {concept2}?
= history-event tail=prose follow=ask
[What were the main causes of|What led to|What ended] {history}?
[Tell me about|Give me an overview of|Summarise|Write a short history of|What do you know about] {history}.
How did {history} change [the world|Europe|trade|people's lives|science|art]?
[Describe everyday life|What did people eat|How did children live|What was it like to be {a job}] during the time of
    {history}.
[When was|When did people first hear of] {history}, and why does it matter?
[List the key dates of|Make a timeline of] {history}.
What can we learn today from {history}?
= history-person tail=prose follow=ask
Who was {figure}?
[What is {figure} best known for|Why is {figure} famous|What did {figure} achieve|How did {figure} change the world]?
[Write a short biography of|Tell me three facts about|Give me a brief portrait of] {figure}.
If {figure} were alive today, what would [he or she|they] think of {tech}?
Compare {figure} and {figure2}.
What [questions would you ask|could we learn from] {figure}?
= geography-country tail=prose follow=ask
[What is the capital of|What languages are spoken in|What is the climate like in|Which countries border] {country}?
[Tell me about|Give me some facts about|Describe the landscape of|Describe the culture of] {country}.
What [food is typical of|holidays are celebrated in|is the economy of|animals live in] {country}[?|, and why?]
How does {country} differ from {country2}?
[Is|Would you say that] {country} [is |]a good place to [live|study|retire|travel with children]?
= geography-places tail=prose follow=ask
Where is {landmark}, and [what is special about it|how was it formed|what lives there|why do people go there]?
[Describe|Tell me about|What should I know about] {landmark}.
How [do people live|does the weather change] [near|around] {landmark}?
What is [the history of|special about|unusual about] {city}?
What is {city} [known|famous] for?
= animals tail=prose follow=ask
[What do {s animals} eat|How long do {s animals} live|Where do {s animals} live|How do {s animals} sleep]?
[Tell me|Give me] {few} [interesting|fun|surprising|little-known] facts about {s animals}.
[Is it true that|How come] {s animals} are so [smart|fast|quiet|dangerous|shy|friendly]?
What is the difference between {a animals} and {a animals2}?
How do {s animals} [raise their young|find food|protect themselves|communicate|survive the winter]?
Describe {a animals} [to someone who has never seen one|in detail|like a nature documentary would].
Would {a animals} make a good pet?
= define-word tail=short follow=ask
What does [the word |]"{anyword}" mean?
Define "{anyword}"[.| and use it in a sentence.| in your own words.| for {audience}.]
[Explain the meaning of|Give a short definition of|What is the meaning of] [the word |]"{anyword}".
Is "{anyword}" a noun, a verb or an adjective? [Explain.|Give an example.|]
Use [the word |]"{anyword}" in [a sentence|two sentences|three different sentences|a question].
What is {a artifact}, and what is it used for?
= reverse-dictionary tail=none follow=ask
[Which|What] word means "{gloss}"?
I'm looking for a word [that means|for] "{gloss}". [Any ideas?|Can you help me?|It's on the tip of my tongue.|]
Crossword clue: {gloss} ({3-11} letters).
What do you call this: {gloss}?
= compare tail=prose follow=ask
[What is the difference between|Compare|How do you tell apart] {artifact} and {artifact2}[?|.]
[Which is better|What would you choose], {choice}[?|, and why?]
Compare {tech} [and|with] {tech2}.
What do {s animals} and {s animals2} have in common?
What are the [similarities|differences] between {subject} and {subject2}?
Compare life in {city} [with|to] life in {city2}[ in a table|].
{cap food} or {food2}: which is healthier?
= pros-and-cons tail=prose follow=ask
[What are the pros and cons of|List the advantages and disadvantages of|What speaks for and against] {topic}?
Give me {few} arguments for and {few2} against {topic}.
Should I choose {choice}? [List the pros and cons of each.|Weigh up both sides.]
What are the [benefits|drawbacks|risks] of {topic}?
Is it worth buying {a object}? [Give me both sides.|What are the pros and cons?]
= why-question tail=prose follow=ask
Why [do|would] people [like|need|fear|talk so much about] {topic}?
Why [do {s animals}|do some {s animals}] [run|hide|sing|sleep so much|live in groups|change their colour]?
Why is [the sky red at sunset|the sea salty|ice slippery|snow white|grass green|blood red|the moon sometimes visible by
    day]?
Why [do we yawn|do we dream|do onions make us cry|do cats purr|do leaves fall|does bread rise|do magnets attract iron]?
Why did [people|so many people] [care about|remember|write about] {history}?
Why is it [hard|important|useful|dangerous] to [{verb} something|be {adj}|ignore {state}|talk about {emotion}]?
Why do people feel {feeling} [on {weekday}s|in {month}|before {a event}]?
= how-question tail=prose follow=ask
How [is {a artifact}|are {s artifact}] made?
How do {s job} [do their work|learn their trade|use {tech}|start their day]?
How [can|do] I tell if {food} {is food} still good?
How do you [clean|repair|store|choose|use] {a object}?
How [much|often] should [I water a houseplant|I change the oil|a child sleep|a person exercise|I back up my files]?
How did people [live|cook|travel|keep warm|tell the time] before {tech}?
How do I get from {city} to {city2}?
= health tail=prose follow=ask
What [helps against|causes|are the symptoms of|can I do about] {health}?
I have {health}. What [should I do|can I eat|helps]?
[When should I see a doctor about|How can I prevent|How long does it take to get over] {health}?
[Is it healthy to|What happens if you] [skip breakfast|drink coffee every day|eat {food} every day|sleep five hours|sit
    all day]?
Give me {few} tips for [better sleep|a healthy back|stronger bones|less stress|a balanced diet|drinking more water].
What vitamins are in {food}?
= economics-money tail=prose follow=ask
How can I save {50-900} [dollars|euros|pounds] a month [as {a job}|on a small income|]?
[What is|Explain] {concept} [and how does it affect {a job}|in terms of money]?
What should I [know before|look out for when] [buying a house|opening a bank account|taking a loan|investing]?
[Is it better to|Should I] [pay off debt or save|lease or buy a car|rent or buy|invest or keep cash]?
How do [interest rates|exchange rates|taxes|pensions|credit scores] work [in {country}|]?
Make a monthly budget for {a job} who earns {1200-5200} [dollars|euros] [and lives in {city}|].
= nature-of-things tail=prose follow=ask
What is [the difference between {emotion} and {emotion2}|the meaning of {emotion}|the opposite of {emotion}]?
Is {a bodypart} [a muscle|an organ|important]? What does it do?
What does [the|a person's] {bodypart} do?
What causes {phenomenon}?
Tell me about {substance}: [what is it|where does it come from|what is it used for]?
What is {process}?
[What kinds of|Which famous] {s artifact} are there?
= fun-facts tail=none follow=ask
[Tell me|Give me|Do you know] [a|an interesting|one] fact about {landmark}.
[Tell me|Share] something [surprising|interesting|funny] about {topic}.
{few} facts about {country}[, please.|.]
Did you know anything about {landmark} that most people don't?
Surprise me with [a fact|something] about {food}.
What's something [most people get wrong|few people know] about {science}?
= misconceptions tail=prose follow=ask
[Is it true|Is it a myth] that [goldfish forget everything|lightning never strikes twice|we only use a small part of
    our brain|carrots improve eyesight|bats are blind|sugar makes children hyper|you lose most heat through your
    head|bulls hate red]?
What are [common myths|common misconceptions|popular mistakes] about {topic}?
[My friend says|I read] that {s animals} are [more intelligent|faster|older|more dangerous] than {s animals2}. Is that
    [true|right]?
Someone told me {tech} {is tech} bad for [your health|the environment|children|the brain]. Is there any truth in it?
""")
