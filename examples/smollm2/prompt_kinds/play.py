"""Kinds of play with language and form: tiny stories, vows, parodies, ciphers, emoji, letters from things, games."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= tiny-story tail=none follow=edit
[Something happened to|Invent a tiny tale about] {hero} {setting}. Not more than {20-80} words.
{cap adj} {noun}, {adj2} {noun2}: make a story of it in {few} sentences.
[Start with|End with] "{bare sentence}" and write {few} lines.
Write a [six-word|ten-word|two-sentence|fifty-word|one-paragraph] story about {a noun}.
Tell a story about {hero} using only [questions|dialogue|short sentences|words of one syllable|text messages].
A story in {few} sentences: {hero} {plot}.
= fable tail=write follow=edit
Write a fable with {a animals} and {a animals2}. The moral: [honesty pays|be careful what you wish for|slow and steady
    wins|never judge by looks|share what you have|listen before you speak|pride comes before a fall].
What is the moral of this story? A {animals} {plot}. In the end {a animals2} helps.
[Retell|Modernise] [Cinderella|Little Red Riding Hood|Snow White|Hansel and Gretel|The Three Little Pigs|Sleeping
    Beauty|Rapunzel|The Ugly Duckling|Jack and the Beanstalk|Puss in Boots] [{setting}|with {a animals}|from the
    villain's view|as a news report].
= object-voice tail=write follow=edit
Write a letter from a {object} to its owner.
You are a {object}. [What do you see every day?|Describe your owner.|Complain about your life.|What do you dream of?]
What would {a animals} [say about|write in a review of|ask] {topic}?
[Write the diary of|A day in the life of] a {object}[ that belongs to {a job}|].
= vows-eulogies tail=write follow=edit
Write [wedding vows|a wedding speech|an engagement message|an anniversary poem] for {a job} who loves {hobby}.
Write a short eulogy for {relation}, {a job} who was {quality} and loved {hobby}.
Write a [dating profile|short bio|introduction] for {a job} from {city} who likes {hobby} and {s animals}.
= parody tail=write follow=edit
Write [a weather report|a cookery show|a sports commentary|a nature documentary|a breaking news item] about {name}
    [looking for {a object}|trying {hobby}|on the first day as {a job}].
Explain {topic} [in the style of|like] [a fairy tale|a legal contract|a recipe|an instruction manual|a love letter|a
    horoscope|a menu|a trailer|a user review].
[Write a recipe for|Give instructions for] {emotion}.
Write {a role}'s shopping list.
= emoji tail=none follow=chat
[Write|Describe|Retell] [{history}|the story of {figure}|{season}|{a event}|my day as {a job}|{a genre} film] [in
    emojis|with emojis only].
Which emojis [fit|go with] "{phrase}"?
What does the emoji [😀|😂|🙏|🔥|🎉|🤔|👀|🥳|😅|🙃|💡|🚀|🌈|🍀|🐢] mean[ when {relation} sends it|]?
= ciphers tail=none follow=chat
[Write|Encode|Translate] "{noun}" in [Morse code|Pig Latin|the NATO alphabet|binary|a Caesar shift of {1-9}|leetspeak].
[Decode|Decrypt] this [Caesar cipher|message] (shift {1-9}): {scrambled} {scrambled2}
[Invent|Explain] a secret code for {audience}.
What [is|are] [a palindrome|a pangram|an anagram|alliteration|an oxymoron|a limerick]? [Give {few} examples.|]
= horoscope tail=none follow=edit
[Read my palm|Tell my fortune|Look into your crystal ball]: will I {verb} in {month}?
Tomorrow is {weekday} the 13th. [Should I {verb}?|What should {a job} avoid?]
What is my spirit animal if I am {quality} and {adj}?
Lucky number, colour and food for {name}, born in {month}[?|, please.]
Write a [daily|weekly|funny] horoscope for
    [Aries|Taurus|Gemini|Cancer|Leo|Virgo|Libra|Scorpio|Sagittarius|Capricorn|Aquarius|Pisces][ in {month}|].
I dreamed of {a animals} {setting}. What could it mean?
[Write|Give me] a fortune cookie message [about {emotion}|for {a job}|that is {tone}].
= compliments tail=none follow=edit
[Give me|Write] {few} compliments for {relation}[, who is {a job}|, who is {quality}|].
Say something nice about [{s job}|{city}|{s animals}|my {object}|people called {name}].
[Write|Invent] a [nickname|team name|award] for {a quality} {job}.
= character tail=write follow=edit
[Invent|Describe|Create] a [character|villain|sidekick|detective|hero] who [is {adj} and {adj2}|loves {hobby}|fears {s
    animals}|{plot}].
Describe {name}, {a quality} {job} {setting}[, in {few} sentences|].
[What would|How would] {figure} [do as {a job}|say about {tech}|spend a day in {city}]?
Give {hero} a [backstory|motivation|weakness|secret].
= plot-ideas tail=list follow=edit
[Give me|List] {few} [plot ideas|story starters|writing prompts|plot twists] for a {genre} [story|novel|film].
How could a story end in which {hero} {plot}?
[Outline|Plan] a {genre} novel in {few} chapters: {hero} {plot}.
What could go wrong when {hero} {plot}?
= scene-with-senses tail=write follow=edit
Describe {setting} using [all five senses|only sounds|only smells|colours|the eyes of {a animals}].
[Show, don't tell|Rewrite with more feeling]: {name} was {feeling}.
Describe how {food} tastes to someone who has never had it.
[Describe|Write about] the moment when {hero} {plot}.
= alternate-history tail=write follow=ask
What if {figure} had [met {figure2}|been {a job}|lived today|owned {a object}|never been born]?
Write a newspaper page from the year {2050-2300}[ in {city}|].
[How would {history} have been different with {tech}?|Imagine how {history} would have gone with {tech}.]
= instructions-absurd tail=list follow=edit
[Explain|Give instructions] how to [teach {a animals} to {verb}|host a party for {s animals}|build a castle of
    {food}|become invisible|travel in time|talk to {a artifact}].
Write the rules of a club for {s animals}.
A survival guide for {a job} {setting}[, please|].
= lists-of-words tail=none follow=chat
{few} words that describe [{season}|{city}|{a animals}|{a job}|{emotion}|{food}].
[List|Give me] {few} [verbs|adjectives|nouns] [about {hobby}|for {a artifact}|a {job} uses|you need at {a event}].
[Words|A word] for the sound of [{phenomenon}|{a vehicle}|{a animals}].
What do [{noun}, {noun2} and {noun3}|{city} and {city2}|{a job} and {a job2}] have in common?
= rankings tail=none follow=ask
Rank [{food}, {food2} and {food3}|{city}, {city2} and {city3}|{hobby}, {hobby2} and {hobby3}|{s animals}, {s animals2}
    and {s animals3}] by [how healthy they are|price|popularity|difficulty|how much fun they are|age].
[What is the best|Pick the most useful|Which is the strangest]: {a object}, {a object2} or {a object3}?
Your top {few} [places in {country}|kinds of {food}|uses for {a object}|{genre} stories]?
= yes-no tail=none follow=chat
[Can|Do|Should] {s animals} {verb}?
Is {a noun} [bigger than {a noun2}|alive|edible|expensive|heavier than water]?
[Can I|Should I|Is it safe to] [eat {food} raw|take {a object} on a plane|keep {a animals} at home|drink tap water in
    {country}|mix {food} and {food2}|swim after eating|drive {vehicle}s in {city}]?
Does {city} have [a metro|a beach|an opera house|mountains nearby|a good university]?
""")
