"""Kinds about words: synonyms, rhymes, blanks, quizzes, word games, spelling, language learning."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= synonyms tail=none follow=chat
[Give me|List|What are|Find] [{few} |]synonyms [for|of] "{anyword}"[.|, please.]
What is [another word|a better word|a more formal word|a simpler word] for "{anyadj}"?
Replace the word "{anyadj}" in "the {anyadj} {noun}" with [something stronger|a synonym|a funnier word].
Do "{anyadj}" and "{anyadj2}" mean the same?
= antonyms tail=none follow=chat
{cap anyadj} and {anyadj2}: opposites or not?
[Say the opposite|Turn it around]: The {anyadj} {noun} was {anyadj2}.
If something is not {anyadj}, what is it?
What is the opposite of "{anyadj}"?
[Antonym of|Opposite of|Give an antonym for] {anyadj}[?|:]
Write [a sentence|two sentences] with "{anyadj}" and its opposite.
Give the opposites of these words: {anyadj}, {anyadj2}, {anyadj3}.
= rhymes tail=none follow=chat
[What rhymes with|Words that rhyme with|Find a rhyme for] "{noun}"?
Give me {few} words that rhyme with {noun}.
Do "{noun}" and "{noun2}" rhyme?
Write [two rhyming lines|a couplet] that end with "{noun}".
= fill-in-the-blank tail=none follow=chat
[Missing word|Which word is missing]: {blank}
{blank} [a or b? a) {noun} b) {anyverb}|Give two possible words.|Explain your choice.]
I always ___ before I {verb}. [Complete it.|Three ideas?]
Fill in the [blank|gap|missing word]: {blank}
Complete the sentence: [{cap job}s should always|The best thing about {city} is|If I were {a animals}, I would|Nothing
    makes me as {feeling} as|I never understood why|My favourite {season} memory is] ...
[Choose the right word|Which word fits], "{noun}" or "{noun2}"? {blank}
Complete the proverb: [A stitch in time|Don't count your chickens|The early bird|When in Rome|Actions speak
    louder|Better late|Too many cooks|Every cloud|Practice makes|Where there's a will] ...
= multiple-choice tail=none follow=chat
Which of these is [a fruit|a metal|a capital city|a mammal|a verb|a musical instrument]?\\nA) {noun}\\nB) {noun2}\\nC)
    {city}\\nD) {substance}
What does "{anyword}" mean?\\n{glosschoices}\\nAnswer with [the letter|one letter and a reason].
[Make|Write] a multiple-choice question about {science}[ with four options| and mark the right answer|].
{cap gloss}: is it (a) {noun}, (b) {noun2} or (c) {noun3}?
= true-false tail=none follow=chat
True or false: {s animals} [can fly|lay eggs|sleep at night|are mammals|live in groups|eat plants].
True or false? {cap country} [is larger than|is north of|has more people than|borders] {country2}.
[Is the following statement true?|Right or wrong?] {cap artifact} means "{gloss}".
Write {few} true or false questions about {history}[ with answers|].
= quiz tail=none follow=chat
[Make|Create|Write] a [short |{few}-question |]quiz [about {history}|about {country}|about {science}|for {audience}
    about {topic}][ with answers|].
[Quiz me on|Test my knowledge of|Ask me questions about] {subject}.
Write {few} flashcards for [learning {language}|{science}|{subject}].
Ask me a trivia question about {landmark}.
[Set|Write] an exam question in {subject} [and a model answer|for students of 15|].
= riddle tail=none follow=chat
[Tell me|Give me|Make up] a riddle [whose answer is {noun}|about {a artifact}|about {phenomenon}|for {audience}].
I am {a riddleadj} thing, and people [use me every day|never see me|fear me]. What could I be?
[Solve this riddle|What am I?]: {gloss}.
= spelling tail=none follow=chat
Is there a double letter in "{anyword}"?
"{misspelt}" looks wrong. [How is it written?|What did I do wrong?]
[British or American|Which variant is British]: [colour or color|theater or theatre|organise or organize|centre or
    center|gray or grey]?
First and last letter of "{anyword}"?
[How do you spell|Is it spelled] "{anyword}"[?| or "{misspelt}"?]
Spell the word {noun} [backwards|letter by letter|in the phonetic alphabet].
How many [letters|vowels|syllables] are there in "{anyword}"?
[Which is correct|Which spelling is right]: {misspelt} or {anyword}?
What is the plural of "{noun}"?
= word-play tail=none follow=chat
Make [a new word|a portmanteau] from "{noun}" and "{noun2}"[ and define it|].
Find words that can be made from the letters of "{anyword}".
[Write|Make] a tongue twister [with the letter {letter}|about {s animals}].
[Write|Give me] a sentence in which every word starts with {letter}.
List {few} [animals|foods|countries|verbs|first names] that [start with|contain the letter] {letter}.
Unscramble these letters: {scrambled}
= idioms tail=none follow=chat
[What does the saying|What is meant by|Explain the idiom] "{idiom}"[?| mean?]
Use "{idiom}" in a [sentence|short dialogue|business email].
[Is there a {language} version of|What is the origin of] "{idiom}"?
[List|Teach me] {few} [idioms|proverbs|sayings] about {topic}.
= grammar-question tail=prose follow=ask
[What is the difference between|When do I use] [affect and effect|fewer and less|who and whom|its and it's|lie and
    lay|then and than|may and might|since and for|do and make|say and tell|a and an|much and many|will and going to]?
[Explain|What is|Give examples of] [a noun|an adverb|a preposition|the present perfect|the passive voice|a relative
    clause|the subjunctive|a conjunction|reported speech|a gerund|the comparative]?
Conjugate the verb "{anyverb}" [in the past tense|in the present|in all tenses].
What is the [past tense|past participle|noun form|ing-form] of "{anyverb}"?
= language-learning tail=prose follow=ask
[Teach me|I want to learn] {few} [useful phrases|words|verbs|greetings] in {language}[ for {a event}|].
How do I [order {food}|introduce myself|ask for directions|count to ten|apologise|say thank you] in {language}?
How hard is it to learn {language}[ for someone who speaks {language2}|]?
[Write|Make] a simple {language} dialogue [at the market|in a restaurant|at the station] with English translation.
= sentence-building tail=none follow=chat
[Write|Make|Form] a sentence [using|with] the words "{noun}", "{anyverb}" and "{anyadj}".
Combine these [sentences|two sentences] into one: {sentence} {sentence2}
Put these words in order: {shuffled}
Write {few} sentences [that start with "If"|about {a artifact}|with the verb "{anyverb}"|in the past tense about
    {city}].
= metaphors tail=none follow=edit
[Give me|Write|Think of] [a metaphor|a simile|{few} similes|an analogy] for {emotion}.
{cap emotion} is like {a artifact}. [Explain the comparison.|Continue the thought.|Do you agree?]
Explain {science} with an analogy from {hobby}.
= names-brainstorm tail=none follow=edit
[Suggest|Give me|Brainstorm] {few} names for [{a company}|my {animals}|a {genre} novel|a podcast about {topic}|a band
    that plays {genre} music|{a object} brand].
What [could|should] I [call|name] my new [{animals}|{company}|boat|blog about {hobby}]?
[Fantasy|Funny|Elegant|Short] names for {hero}[, please|].
""")
