"""Kinds that work on a text given in the request: summarise, rewrite, correct, translate, extract, classify."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= summarise tail=none follow=edit
[Summarise|Summarize|Sum up|Shorten] [this|the following text|the passage below][ in one sentence| in {few} words or
    so| in two sentences| as bullet points|]:\\n\\n{passage}
{passage}\\n\\n[Summarize the above.|TL;DR?|What are the main points?|Give me the gist in one sentence.]
[Give this text a title|Write a headline for this|What is this text about?]:\\n\\n{passage}
= question-on-passage tail=none follow=chat
[Read the text and answer the question.|Answer the question using only the text.|]\\n\\nText: {passage}\\n\\nQuestion:
    [Who is mentioned in the text|What is the main idea|Where does it take place|What happens first|What numbers are
    mentioned|What should the reader do next]?
{passage}\\n\\n[Write {few} questions about this text.|What could happen next?|Is the tone positive or negative?
    Why?|Who might have written this?|Ask me a question about it.]
= extract tail=none follow=edit
[Extract|List|Find|Pick out] all [names|places|numbers|dates and times|nouns|people and their jobs|verbs] [from|in]
    [this text|the following passage]:\\n\\n{passage}
From the text below, make a [JSON object|list|small table] with the [names, places and dates|key facts|most important
    words].\\n\\n{passage}
{record}\\n\\n[What is the email address?|Who is this about?|Extract the name and the phone number.|Turn this into
    JSON.|Write this as a full sentence.]
= rewrite-formal tail=none follow=edit
[Rewrite|Rephrase|Say] this [more formally|in a formal style|in business English|more politely]: "{casual}"
Make this [sentence |text |]sound [more professional|more polite|less rude|friendlier|more confident]: "{casual}"
[How can I say|What's a nicer way to say] "{casual}" [to my boss|in an email|to a customer]?
= rewrite-style tail=none follow=edit
[Rewrite|Rephrase|Retell] the following [in a {tone} tone|for {audience}|as a poem|as a news report|like {a role} would
    say it|in the first person|as a dialogue]:\\n\\n{passage}
Rewrite "{bare sentence}" [in a {tone} way|as a question|in the future tense|in the past tense|in the negative|with
    simpler words|like Shakespeare].
[Make this shorter|Simplify this|Cut this to half its length|Expand this into a paragraph]: {sentence} {sentence2}
= paraphrase tail=none follow=edit
[Paraphrase|Reword|Say in other words|Put differently]: [{sentence}|"{sentence}"]
[Give me|Write] {few} [ways to say|paraphrases of|variations of] "{sentence}"
Rewrite this so that it doesn't sound copied: {passage}
= active-passive tail=none follow=chat
{svo} [Make it a question.|Negate it.|Who does what here?|Start with "Yesterday".]
[Find|Underline|Name] the [verb|object|subject|adjectives]: {svo}
What changes if I put "{svo}" into the plural?
[Change|Turn|Put] [this sentence|the following] into the [passive|active] voice: {svo}
[Is this sentence active or passive?|What is the subject of this sentence?|Which tense is this?] "{svo}"
Rewrite in the [past|present|future|present perfect] tense: {svo}
= grammar-fix tail=none follow=chat
[Correct|Fix|Check] [the grammar|the mistakes|my English|spelling and grammar][ in this sentence|]:
    [{broken}|"{broken}"]
{broken}\\n\\n[Is this correct?|What is wrong with this sentence?|Please correct it and explain.|Fix it.]
[Proofread this|Correct this text]: {broken} {broken2}
= punctuation tail=none follow=chat
Add [punctuation|punctuation and capital letters|commas where needed] to: {unpunctuated}
[Write this in|Convert to|Change to] [uppercase|lowercase|title case|sentence case]: {sentence}
Where [does the comma go|do the commas go] in this sentence? {unpunctuated}
= translate tail=none follow=translate
[Translate|Please translate|Can you translate] [this |]into {eulanguage}: {sentence}
[How do you say|What is] "{phrase}" in {eulanguage}?
[Translate|Put] "{sentence}" [to|into] {eulanguage}[ and {eulanguage2}|].
{sentence} -> {eulanguage}
[What are the {eulanguage} words for|How do you say in {eulanguage}:] {noun}, {noun2} and {noun3}?
= translate-from tail=none follow=translate
[What does "{foreign}" mean?|What is the meaning of "{foreign}"?|What is "{foreign}" in English?]
Translate [to|into] English: {foreign}
[Which language is this|What language is it], and what does it say? {foreign}
= sentiment tail=none follow=chat
[Is this review positive or negative?|Classify the sentiment (positive, negative, neutral):|What is the mood of this
    review?|Rate the sentiment from 1 to 5.] {review}
Review: {review}\\nSentiment:
[Decide for each sentence whether it is positive or negative.|Which of these reviews is better?]\\n1. {review}\\n2.
    {review2}[\\n3. {review3}|]
How would you [reply|respond] to this review as the owner? "{review}"
= classify tail=none follow=chat
{mixed}: [which are alive?|which can you eat?|sort into two groups|make a table of categories]
{animals}, {animals2}, {object}: [odd one out?|which two belong together?]
Fact or opinion? {sentence}
[Classify|Sort|Put] these words [into animals, foods and objects|into groups|by category]: {mixed}.
[Which word does not belong?|Find the odd one out.|Which one is different, and why?] {mixed}
Is this [a question, a statement or a command|about work, family or leisure|spam or not spam]? "{message}"
Label the [topic|department|urgency] of this message[ (sales, support, billing)|]: "{message}"
Is {a noun} [a living thing|a person, a place or a thing|something you can touch]?
= label-emotion tail=none follow=chat
"{message}" - [angry, happy or neutral?|one emoji for this?|how would you feel?]
Which word in "{bare sentence}" shows a feeling?
{cap relation} texted: "{casual}". [Are they upset?|Should I worry?|What do they mean?]
[What emotion does this express?|How does the writer feel?|Name the feeling in this message.] "{message}"
Is the speaker being [sarcastic|serious]? "{review}"
On a scale from 1 to 10, how [urgent|polite|angry] is this message? "{message}"
= reply-to-message tail=none follow=edit
[How should I reply to this message?|Write a reply.|What can I answer?|Help me respond in a {tone}
    way.]\\n\\n"{message}"
{relation} wrote: "{message}" [What should I say?|How do I say no politely?|Write a short reply.]
= headline tail=none follow=edit
[Write|Suggest] {few} headlines for [an article about {topic}|this text: {passage}]
Improve this headline: "{cap hobby} is good for {s job}"
[Make a|I need a] title for [a {genre} story about {hero}|a talk on {science}|a report about {topic}].
= meeting-notes tail=none follow=edit
[Turn these notes into|Write] [minutes|a summary|a to-do list|an email to the team][:| from these notes:]\\n\\n{notes}
{notes}\\n\\n[Who has to do what?|What was decided?|What are the next steps?|Write this up nicely.]
= keywords tail=none follow=edit
[Give me|List|Suggest] {few} keywords for [this text|the following]:\\n\\n{passage}
[Which tags|What hashtags] would fit a post about {topic}?
[Highlight the most important words in|What are the key terms in] this: {sentence} {sentence2}
""")
