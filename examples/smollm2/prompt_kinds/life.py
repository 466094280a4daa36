"""Kinds of daily life: family, friends, clothes, machines that fail, moving house, crafts, experiments, forms."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= parenting tail=list follow=ask
My {2-16}-year-old [won't sleep|refuses homework|is afraid of {s animals}|wants {a object}|lies a lot|asks about
    {topic} all the time]. [What can I do?|Is this a phase?|How do other parents handle it?]
How do I explain {concept} to my [son|daughter|child|class]?
At what age [should|can] a child [have a phone|stay home alone|learn to swim|learn {language}|use {tech}]?
[Ideas|Rules|A weekly plan] for [chores|screen time|pocket money|bedtime] for {few} children, please.
Activities to do with a [baby|toddler|teenager] [in {season}|in {city}|indoors]?
= relationships tail=prose follow=ask
{cap relation} and I [argue about {topic}|have not spoken since {month}|want to travel to {country}|don't trust each
    other]. [What now?|How do I start the conversation?|Who should apologise?]
How do I tell {relation} that [I can't come to the {event}|I don't like {food}|I broke the {object}|I need more time
    alone|I am {feeling}]?
Is it normal to [miss {relation}|dislike {relation}|feel {feeling} after {a event}]?
What makes a good [friendship|marriage|team|neighbour]?
[First date|Anniversary|Valentine's Day] ideas in {city}[ for someone who likes {hobby}|]?
= fashion tail=list follow=ask
What [should I wear|shoes fit|colours match] for {a event} in {season}?
What goes with a {color} [dress|jacket|shirt|sweater|pair of trousers|hat]?
How do I [wash wool|remove a stain from silk|fold a shirt|tie a scarf|shrink a sweater|polish shoes|sew on a patch|pack
    a suit]?
[Describe|Suggest] an outfit for {a job} [at {a event}|in {city} in {month}|on a small budget].
= tech-help tail=list follow=ask
My [Wi-Fi|printer|phone|laptop|television|headphones|keyboard|smart watch] [is slow|does not connect|makes a strange
    noise|turns off after {2-50} minutes|shows a {color} screen|does not charge]. [What can I try?|Is it broken?|Help!]
How do I [take a screenshot|delete my browser history|block a number|free up space|change my password|scan a
    document|share a calendar|turn off notifications|print on both sides|update an app|reset a router] [on a phone|on a
    laptop|]?
[Explain|What is the difference between] [a browser and a search engine|Wi-Fi and mobile data|RAM and storage|a virus
    and spam|the cloud and a hard drive] [to {audience}|]?
Which [apps|websites|tools] help to {goal}?
= car-and-bike tail=list follow=ask
My [car|bike|scooter|van] [won't start|makes a noise when I brake|pulls to the left|uses too much fuel|has a flat
    tyre|smells of petrol]. [What could it be?|Can I fix it myself?|How urgent is it?]
How do I [change a tyre|check the oil|jump-start a car|park in a small space|drive on snow|fix a bicycle chain|pump up
    a tyre|adjust a saddle|scrape ice off a window]?
[Is it cheaper to|Should I] [buy electric or petrol|lease or buy|repair my old {vehicle} or replace it|take the
    {vehicle} or walk]?
What documents do I need to [sell a car|drive in {country}|rent a van]?
= moving-house tail=list follow=ask
I'm moving from {city} to {city2} in {month}. [What do I have to do first?|Make a checklist.|What do people forget?|How
    much will it cost?]
What should I [check|ask] when I view a flat[ in {city}|]?
[Write|Draft] [a note to my new neighbours|a listing for my old flat|a message to my landlord: {complaint}|an advert to
    find a roommate].
How do I [pack plates|move a piano|paint a rented room|meet my neighbours|furnish a small room with {50-900} dollars]?
= crafts tail=list follow=ask
How do I make [a candle|a paper lantern|a birdhouse|a mask|soap|a kite|a friendship bracelet|a picture frame|a costume
    of {a animals}|a puppet|a scarf|origami {s animals}]?
[What can I make from|Craft ideas with] [old newspapers|empty jars|wool|leaves|cardboard|buttons|an old {object}|wine
    corks|{material}]?
Which [tools|materials|glue|paint] do I need for [{hobby}|working with {material}|a wooden shelf|a mosaic]?
= experiment tail=list follow=ask
[Suggest|Describe] [a simple|a safe|a cheap] experiment [about {science}|with water|with {food}|for {audience}].
How can I show {science} [at home|in class|with a {object}]?
[Write|Outline] a lab report on [how plants react to light|how fast ice melts|which paper plane flies furthest|what
    makes bread rise].
My hypothesis: {s animals} [prefer {food}|are faster than {s animals2}|can see {color}]. How could I test it?
= kids-questions tail=prose follow=ask
Why [is the sky blue at noon|do cats purr|can't we breathe water|do we have to sleep|is the moon following us|do teeth
    fall out|are there waves|do {s animals} have tails|is {color} called {color}]? My child asked.
Where do[es|] [the sun go at night|rain come from|{s animals} sleep|dreams come from|sand come from|words come from]?
What is at the [end of a rainbow|bottom of the sea|centre of the earth|edge of space]?
Do {s animals} [have feelings|dream|talk|like music|know their names]?
= drinks tail=list follow=ask
How do I make [a good coffee|iced tea|hot chocolate|lemonade|a smoothie with {food}|a milkshake|ginger tea|a fruit
    punch for {5-60} people|cold brew]?
What [drink|wine|tea|juice] goes with {dish}?
How much [water|coffee|tea] [is too much|should {a job} drink a day]?
= restaurant-hotel tail=write follow=edit
Write a message to [a restaurant|a hotel] in {city}: [table for {2-12} on {weekday}|late arrival|allergic to
    {food}|lost {object}|room with a view|cancel for {month} {1-28}].
[Write|Invent] a menu for {a company} [with {few} dishes|for {season}|with {food} in every dish].
Write a [kind|balanced|funny|short] review of a [restaurant|hotel|museum|campsite] in {city}.
How do I [complain about cold food|ask for the bill|order without {food}|book a table] [in {language}|politely|]?
= forms-and-admin tail=list follow=ask
What do I need to [apply for a passport|register a company|open a bank account|get a library card|file taxes|change my
    name|insure {a object}|adopt {a animals}|apply for a visa to {country}]?
[Explain|What does] [net and gross|a deductible|a power of attorney|a cover note|a notice period|a deposit|VAT|a direct
    debit|an audit|a receipt] [mean on a letter|in simple words]?
[Fill in|Make up] an example form for [{a event}|a lost {object}|membership in a {hobby} club].
Write a [reminder|payment reminder|receipt|invoice] for {2-30} {s object} from {brand}.
= club-and-school tail=write follow=edit
Write [a notice|a poster|a newsletter item|a parents' letter] about [the {event} on {weekday}|a {hobby} club|a lost
    {object}|new rules|a trip to {city}].
Start a [book|chess|{hobby}|film] club: [what do I need?|name, rules and first meeting|write the invitation].
Write a [school report|sick note|thank-you note to a teacher|student council speech|yearbook text] [for {name}|about
    {topic}|].
= shopping-list tail=none follow=edit
[Make|Write] a [shopping|packing|to-do|wish|gift] list for [{a event}|{few} days in {city}|{a job}|{relation}|{dish}
    and {dish2}].
Sort my shopping list by [department|price|weight]: {food}, {object}, {food2}, {object2}, {food3}.
I have {food}, {food2} and {20-90} dollars. [What else should I buy for {a event}?|What can I make?|Plan three dinners.]
= decision tail=prose follow=ask
Help me decide: {choice}? [My budget is {50-900} dollars.|I am {quality} but {feeling}.|I have until {weekday}.|]
[Flip a coin|Choose for me|Ask me questions until you know]: {choice}.
I can't decide whether to {goal} or to {goal2}. [What speaks for each?|Decide by the stars.|Ask me {few} questions
    first.]
[What would {figure} choose|What would {a job} choose]: {choice}?
= habits tail=list follow=ask
How do I [stop|start] [biting my nails|eating late|going to bed early|checking my phone|doing {hobby} every day|reading
    before bed|saying "um"|spending money on {food}]?
[Make|Design] a {7-30}-day challenge [to {goal}|about {topic}|for {s job}].
What is a good [morning|evening|weekend] routine for {a job}[ who feels {feeling}|]?
I want to {goal} and need [a reminder text|a reward system|an accountability plan|a first step].
""")
