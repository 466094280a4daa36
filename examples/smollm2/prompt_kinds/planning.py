"""Kinds that ask for lists, steps, tables, plans, recipes, travel and ideas."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= list tail=list follow=ask
[List|Name|Give me|Tell me] {few} [types of|kinds of|examples of|famous|common|useful] {s artifact}.
[List|Name] {few} [things you find|jobs people do|animals that live|sounds you hear] {setting}.
[What are|Name] the {few} most important [things to know about {topic}|inventions in the field of {tech}|cities in
    {country}|rules of {hobby}]?
[List|Write down] [{few} |]things that are {adj}.
Give me {few} [books|films|songs|paintings] about {emotion}.
Top {few} [reasons to visit {country}|foods with {food}|skills for {a job}|mistakes in {hobby}]
= how-to-steps tail=list follow=ask
[How do I|How can I|Explain how to|Give me step-by-step instructions to] [tie a tie|change a tyre|sew on a button|iron
    a shirt|build a birdhouse|plant a tree|make a paper plane|clean a window|paint a wall|fix a leaking tap|set up a
    tent|wash a {animals}|unclog a drain|hang a picture|back up a phone|write a will|pack a suitcase|start a
    campfire|repot a plant|descale a kettle|sharpen a knife|remove a coffee stain|assemble a bookshelf]?
[How do I start|Steps to start|A beginner's guide to] {hobby}[?|.]
What are the steps to [become {a job}|open {a company}|organise {a event}|adopt {a animals}|move to {country}]?
Write a [checklist|manual|how-to guide] for {a object}.
= recipe tail=list follow=ask
[How do I make|Give me a recipe for|What is the recipe for|How do you cook] {dish}?
What can I cook with {food}, {food2} and {food3}?
[I need|Suggest] a [quick|cheap|vegetarian|vegan|healthy|gluten-free] [dinner|breakfast|lunch|snack|dessert] [with
    {food}|for {few} people|under {10-45} minutes].
What can I use instead of {food}[ in {dish}|]?
How long do I [cook|boil|bake|steam|store] {food}?
[Write a shopping list|List the ingredients] for {dish}[ for {2-12} people|].
What goes well with {food}?
= meal-plan tail=list follow=edit
[Make|Plan|Write|Create] a [{3-7}-day|weekly|one-day] meal plan [for {a job}|without {food}|for a family of {2-6}|under
    {30-120} euros|with lots of {food}].
What should I eat before [a marathon|an exam|{hobby}]?
Plan a [three-course menu|buffet|breakfast] for {a event}[ with {food}|].
= travel tail=list follow=ask
[Plan|Suggest|Write] {a 2-10}-day [trip|itinerary] [to|for] {country}[ in {month}| with children| on a small budget|].
What should I [see|do|eat|avoid] in {city}[ in {month}| on a rainy day| in one day|]?
[When is the best time to visit|Is it expensive to visit|What should I pack for|Do I need a visa for] {country}?
[Best way to travel|How do I travel] from {city} to {city2} [by {vehicle}|cheaply|with luggage]?
[Recommend|Name] {few} [places|museums|day trips|dishes to try] in [{city}|{country}].
Write a [travel guide entry|review|hidden-gems list] for {city}.
= schedule tail=list follow=edit
[Make|Create|Write] a [daily|weekly|weekend|study] schedule [for {a job}|for someone who wants to {goal}|with time for
    {hobby}].
[Plan my {weekday}|Organise my day]: I have to [work until {3-7} pm|study {subject}|cook {dish}], [buy {a object}|call
    {relation}] and [practise {hobby}|go to {a event}].
I have {2-12} weeks to {goal}. [Make a plan.|What should I do each week?]
Agenda for a [{20-90}-minute|short] meeting about {topic}[, please|]
= party-planning tail=list follow=edit
[Help me plan|How do I plan|I'm organising] a {event} for {5-80} people {setting}. [What do I need?|Make a
    checklist.|Give me ideas.]
[Ideas|Games|Decorations|Food] for {a event} [in {month}|with children|on a budget of {50-900} dollars]?
What [gift|present] can I give to {relation}, who [likes {hobby}|is {a job}|has everything]?
= table tail=none follow=edit
[Make|Create|Draw] a table [comparing|of] [{s animals}, {s animals2} and {s animals3}|{country}, {country2} and
    {country3}|{tech} and {tech2}] [with {few} columns|by size, cost and age|].
[Create|Write] a Markdown table with [{few} {s object} and their prices|{few} countries and their capitals|the planets
    and their sizes|a weekly timetable|{few} {s job} and their tools].
[Put|Write] [{name}, {name2} and {name3}|{city}, {city2} and {city3}] in a table with [age, job and hobby|population
    and country] (invent the data).
= structured-output tail=none follow=edit
[Return|Give me|Answer with] [only |]a JSON [object|array] [with|of] {few} [{s animals}|{s job}|{s object}] [and their
    properties|with name and price|].
[Write|Generate] {few} [fake names and addresses|sample customers|random passwords|test users] [as CSV|as JSON|one per
    line].
Answer [with yes or no|in one word|with a number only|in capital letters|in exactly {3-12} words]: [is {a animals}
    bigger than {a animals2}|do you like {food}|is {city} in {country}|how many legs does {a animals} have]?
[Output|Print] the [days of the week|months|alphabet|planets|numbers from {1-9} to {10-30}] [backwards|separated by
    commas|as a numbered list|in upper case].
= brainstorm tail=list follow=ask
[Brainstorm|Give me|I need|List] {few} [ideas|creative ideas|unusual ideas] for [{a event}|a blog about {topic}|a
    {genre} story|a new {object}|{a company}|a school project on {science}|a photo series about {emotion}].
[How many uses can you think of for|What can I do with] [an old {object}|{a artifact}|{few} empty bottles|a broken
    {object}]?
What are some [activities|games|projects] for {audience} [in {season}|on a train|about {science}]?
How could {a company} [attract more customers|save energy|use {tech}|become famous]?
= business-plan tail=list follow=ask
[Write|Outline|Draft] a [business plan|marketing plan|mission statement|SWOT analysis|pitch] for {a company}[ in
    {city}|].
[Is it a good idea|Would you advise me] to open {a company} in {city}?
How [do I price|can I sell more|should I advertise] {s object}[ online|]?
What does {a company} need [to get started|to survive the first year|by law]?
= study-help tail=list follow=ask
How [can|should] I [study for|prepare for|pass|get better at] [an exam in |]{subject}?
[Make|Write] a lesson plan [on {science}|about {history}|for {subject}] for {audience}.
[Give me|What are] {few} [study tips|ways to remember vocabulary|exercises|essay topics] for {subject}.
[Help me with my homework|I don't understand my homework]: [explain {concept}|write about {history}|{sum}|name {few}
    facts about {landmark}].
[Who should I read|What should I read] to learn about {topic}?
= workout tail=list follow=ask
[Make|Give me|Write] a [{10-60}-minute|weekly|beginner's] [workout|training plan|stretching routine] [for {a
    job}|without equipment|at home|for someone with {health}].
How do I [do a push-up|do a plank|run faster|stretch my back|start {hobby}|train for {5-42} km]?
How many calories does one burn [with|by] {hobby}?
= home-garden tail=list follow=ask
[How do I|When should I|What is the best way to] [plant|water|harvest|grow] [tomatoes|roses|carrots|basil|apple
    trees|lavender|potatoes|sunflowers|strawberries|mint]?
My {plantword} [has yellow leaves|does not grow|is full of insects|dried out]. [What can I do?|Why?]
How do I [get rid of ants|clean the oven|store {food}|decorate a small room|save heating costs|organise a wardrobe|stop
    a door from squeaking]?
[Which plants|What flowers] grow well in [shade|a dry garden|{country}|pots on a balcony]?
= pet-care tail=list follow=ask
How [do I|often should I] [feed|wash|train|groom|play with] my {petanimal}?
My {petanimal} [won't eat|is afraid of thunder|scratches the sofa|sleeps all day|bites]. [What should I do?|Is that
    normal?|Why?]
[What do I need|What does it cost] to keep a {petanimal}?
Can {s petanimal} eat {food}?
= books-films tail=prose follow=ask
[Recommend|Suggest|Can you name] [a book|a film|{few} novels|a series|a documentary] [about {topic}|for {audience}|for
    someone who likes {hobby}|set in {country}].
Write a [short review|summary|back-cover text|trailer script] of [an imaginary {genre} film about {hero}|a made-up
    novel set {setting}].
What makes a good {genre} [story|film]?
[Who is your favourite|Describe a typical] [character|villain] in {genre} [stories|films]?
= shopping tail=prose follow=ask
[What should I look for|What matters] when buying {a object}?
[Which|What kind of] {object} is best for [{a job}|{audience}|travelling|a small flat|{hobby}]?
Is {50-900} [dollars|euros] too much for {a object}?
How do I know if {a object} is of good quality?
= packing-safety tail=list follow=ask
What should I [pack|bring] for [{hobby}|{a event}|{few} days in {city}|a trip to {landmark}]?
What should I do in case of [an earthquake|a fire|a power cut|a flood|a snake bite|a burn|a car accident|a lost
    passport|a heat wave]?
[Write|List] safety rules for [{s job}|{hobby}|a school trip|a chemistry lab|using {a object}].
How do I keep [my password|my bicycle|my home|my data|children online] safe?
""")
