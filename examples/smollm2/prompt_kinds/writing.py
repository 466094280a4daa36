"""Kinds that ask for prose, verse and business texts: stories, poems, letters, adverts, speeches, essays."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= story tail=write follow=edit
[Write|Tell me|Make up|Create] [a|a short] {genre} story about {hero} [who {plot}|].
[Write a story|Tell a story|I want a story] set {setting} [about {hero}|where {hero} {plot}].
Write [the opening|the first paragraph|the ending] of a {genre} [novel|story] {setting}.
[Bedtime story, please:|A story for {audience}:] {hero} {plot}.
Write a story that [begins|ends] with the sentence "{sentence}"
Write a {few}-sentence story about {emotion}.
Invent a legend that explains [why {s animals} are shy|how {landmark} came to be|where {emotion} comes from].
= continue-story tail=none follow=edit
{cap name} looked at the {object} and knew that something was wrong.
[Pick up the story here|Go on from here]: {sentence} Nobody answered.
"{bare sentence}?" asked {name}. "{bare sentence2}", said {name2}. [Go on.|Write the next lines.]
It was the last {weekday} of {month}, and {hero}
Continue this story: {cap hero} lived {setting}. One {weekday} morning, something [strange|wonderful|terrible] happened.
[Continue|Finish|Complete] the [following |]text:\\n\\n{sentence} {sentence2}
Once upon a time, there was {hero} who {plot}. [Continue.|What happens next?]
What happens next? "{name} opened the door and saw {a artifact} [on the floor|in the snow|full of water]."
Write the next paragraph: It was [late|early|cold|a hot day] {setting}. {name} had not slept for days.
= poem tail=none follow=edit
Write a [short |]poem about {emotion}.
Write a [haiku|limerick|sonnet|rhyming poem|free verse poem|four-line poem] about {a animals}.
[Compose|Write|Create] a [{tone} |]poem [about {season}|about {city}|about {topic}|for {relation}].
Roses are red, violets are blue... [finish this poem about {hobby}.|Write one about {food}.]
Write a poem that contains the words {noun}, {noun2} and {noun3}.
A poem about {a object} that [nobody uses any more|dreams of {city}|misses its owner].
Write {few} [haikus|couplets] about {s landform}.
= song tail=none follow=edit
[Sing to me about|Make up a lullaby with] {a animals} and {a object}.
A [birthday|work|protest|love|sea] song for {relation}[ with {few} verses|].
Rewrite a nursery rhyme so that it is about {tech}.
The chorus goes "{bare sentence}". Write the verses.
Write [a song|song lyrics|a chorus|a lullaby|a rap|a country song|a blues verse] about {emotion}.
[Write|Compose] a [{tone} |]song [about {hobby}|for {a event}|about leaving {city}|about {a job}].
I need lyrics for {a genre} musical about {hero}. [Two verses and a chorus.|Just the first verse.|]
= joke tail=none follow=chat
Tell me a joke[ about {s animals}| about {a job}| about {food}| about {topic}|].
[Do you know|Got] [any good|a] [joke|pun|one-liner|knock-knock joke]s? [Something about {s job}|About {topic}, maybe].
Make me laugh[: I'm having a bad {weekday}.|! I feel {feeling} today.|with a joke about {tech}.]
Write {few} [puns|jokes|one-liners] about {food}[ that a child would like|].
= dialogue tail=write follow=edit
Write a [short |]dialogue between {a job} and {a job2} about {topic}.
[Write|Invent] a conversation between {a animals} and {a animals2} {setting}.
Write a scene [for a play|for a film|for a radio play] in which {name} tells {name2} that {excuse}.
Two friends, {name} and {name2}, argue about {choice}. Write their dialogue.
Write a phone call between a customer and {a company}: {complaint}.
= interview tail=write follow=edit
Write an [imaginary |fictional |]interview with {figure} [about {topic}|].
[Prepare|Give me|Write] {few} interview questions for {a job}[ with answers|].
I have a job interview as {a job} [next {weekday}|tomorrow]. What questions [will they ask|should I expect]?
How should I answer "[Why do you want this job|What is your greatest weakness|Where do you see yourself in five
    years|Tell me about yourself]?" [as {a job}|when I apply to {a company}]?
= speech tail=write follow=edit
Write a [short |{tone} |]speech for {a event}.
[Write|Draft] a [toast|thank-you speech|welcome speech|farewell speech] for {relation} [who is {a job}|].
I have to speak about {topic} for {few} minutes. [Write my speech.|Help me with the opening.|Give me an outline.]
Write a speech that convinces {audience} to [care about {topic}|try {hobby}|save energy|vote].
= diary tail=write follow=edit
Write a diary entry [of|by] {hero} who {plot}.
[Dear diary: write|Write] about a day in the life of {a job}[ in {city}| during {history}| on the moon|].
Write a [{tone} |]journal entry about feeling {feeling} [on a {weekday}|in {city}|after {a event}].
= letter tail=write follow=edit
Write a letter to {relation} [about {topic}|saying that {excuse}|inviting them to {a event}|from {city}].
[Write|Draft] a [formal|short|polite|{tone}] letter to {a company} [asking for a refund|asking about opening hours|to
    cancel a contract|to ask for an internship].
Write a [love letter|thank-you letter|letter of recommendation|fan letter|goodbye letter] [to|for] {a job}.
Write a letter to my [future|younger|ten-year-old] self about {topic}.
Write a postcard from {city}[ to {relation}|].
= work-email tail=write follow=edit
Write an email to my boss [asking for {2-15} days off in {month}|about a raise|about {topic}|explaining that {excuse}].
[Draft|Write|Compose] a {tone} email to {a company} [to confirm an appointment on {weekday}|to ask for a quote|to
    complain that {complaint}].
Write an email to [all employees|the team|our customers] [about the {event} on {weekday}|about new opening
    hours|announcing {tech} training].
[Reply to this email|Answer this email]: "Hi {name}, can we move the meeting from {weekday} to {weekday2}? {name2}"
Please write a follow-up email after [a job interview as {a job}|a sales call|a meeting about {topic}].
Subject line ideas for an email about {topic}[?| (give me {few}).]
= cover-letter tail=write follow=edit
Write a cover letter for a job as {a job}[ at {a company}| in {city}|].
Help me with my CV: I am {a job} with {2-25} years of experience[ in {city}|] and I am {quality} and {quality2}.
Write a [LinkedIn summary|short bio|professional profile|personal statement] for {a job} who [likes {hobby}|is
    {quality}|speaks {language}].
What should {a job} write in a cover letter? [Give an example.|]
I want to change from {job} to {job2}. Write a [short |]application letter.
= apology tail=write follow=edit
[Write|Help me write] an apology to {relation}: {excuse}.
How do I apologise to {relation}? {cap excuse}.
Write a [short|sincere|{tone}] apology [from {a company} to a customer|to a client]: {complaint}.
Sorry message for {relation} because {excuse}.
= complaint tail=write follow=edit
Write a [polite |firm |{tone} |]complaint to {a company}: {complaint}.
[Help me complain|I want to complain] to {a company} because {complaint}. [What should I write?|Write the email.]
Write a [negative|one-star|fair] review of {a company}, because {complaint}.
= product-description tail=write follow=edit
Write a product description for {a object}[ called {brand}| made of {material}| for {audience}|].
[Describe|Sell me] {a adj} {object} [in {few} sentences|for an online shop|in a catalogue style].
List {few} features of a {object} [by {brand}|] and [explain why they matter|one benefit for each].
Write a [positive|balanced|{tone}] review of {a object}.
= advert tail=write follow=edit
Write an [advert|ad|advertisement] for {a company}[ in {city}| called {brand}|].
Write a [radio ad|poster text|flyer|newspaper ad|video script] for {a event} {setting}.
[Advertise|Promote] {food} to {audience}.
Write a classified ad: I am selling {a object}[, {2-20} years old|, as good as new| because I am moving].
Write a job advert: {a company} in {city} is looking for {a job}.
= slogan tail=none follow=edit
[Write|Give me|Think of|Come up with] {few} [slogans|taglines|catchy headlines] for {a company}[ called {brand}|].
A slogan for a {object} [for {audience}|that never breaks|made in {country}].
I need a [motto|slogan] for {a event}[ about {topic}|]. [Make it {tone}.|It should rhyme.|]
= social-post tail=none follow=edit
#{color} #{verb} [write a post for these hashtags|what could this photo show?]
Reply to a comment under my post: "{message}"
Bio for my [page|profile]: {job}, {hobby}, {city}.
My followers like {s animals} and {food}. [Give me {few} post ideas.|What should I post on {weekday}?]
Write a [tweet|short post|social media post|caption] about {topic}[ with hashtags|].
[Write|Create] a LinkedIn post about [my new job as {a job}|{tech}|our {event}|{topic}].
Caption for a photo of {a animals} {setting}[, please|].
Announce [our {event}|the opening of {a company}|my move to {city}] in a [{tone} |]post.
= blog tail=write follow=edit
Write [a blog post|an introduction for a blog post|a blog article] about {topic}.
[Give me|Write|Make] an outline for a blog post [titled "{cap hobby} for beginners"|about {science}|on how to {goal}].
Suggest {few} blog post titles about {hobby}.
Write the conclusion of an article on {tech}.
= essay tail=write follow=edit
Write [an essay|a short essay|a five-paragraph essay|an essay introduction|a thesis statement] [about|on] {topic}.
Write an [argumentative|opinion|analytical|descriptive] essay: {topic}.
[Argue|Write an essay arguing] that {topic} [{is topic} good for society|{is topic} overrated|should be discussed at
    school|will change us].
[Outline|Plan] an essay on {concept} [for my {subject} class|].
= news-article tail=write follow=edit
Write a [news article|headline and short article|press release|local news report] about {a event} in {city}.
[Report|Write a news report] on this: {a animals} escaped from the zoo in {city} [and {plot}|].
Write a press release: {brand}, {a company} from {city}, announces {a adj} {object}.
Write a weather forecast for {city} in {month}.
Write a [sports report|match report] about a [football|tennis|chess|basketball] match between {city} and {city2}.
= description tail=write follow=edit
Describe {a artifact} [in detail|to someone who cannot see it|without using its name].
Describe [a market|a sunset|a street|the beach|a winter morning|an old house|a train station] {setting}.
Describe a [character|villain|hero] for a {genre} story: {hero}.
Paint a picture in words: {a adj} {landform} [at dawn|in the rain|at night].
What would {setting} [smell|sound|look] like? Describe it.
= invitation tail=write follow=edit
Write an invitation to {a event} on {weekday}, {month} {1-28}[, {setting}|].
[Text|Message] for {relation}: they're invited to my {event} [at {3-9} pm|].
Write a [{tone} |]reply to an invitation to {a event}: [I can't come|I'll be there with {relation}|I will be late].
= greeting-card tail=none follow=edit
[Write|I need] a [birthday message|get-well card|congratulation|thank-you note|farewell note|wedding wish] for
    {relation}[, who loves {hobby}|].
What should I write in a card for {relation} [who is moving to {city}|who became {a job}|who feels {feeling}]?
A [{tone} |]message for my colleague's {event}[, max {15-60} words|].
= acrostic tail=none follow=edit
An acrostic with my name, {upname}, please.
[Can you turn|Turn] the letters of {upnoun} into a poem?
{upnoun}: one adjective for each letter.
Write an acrostic [poem |]for the word {upnoun}.
Make an acrostic from the name {upname}[ about {topic}|].
Each line should start with a letter of "{upnoun}": a poem about {emotion}.
= worldbuilding tail=write follow=edit
[Invent|Describe|Create] [a fantasy country|an imaginary planet|a magical animal|a strange festival|a secret society|a
    new sport] {setting}[ for my novel|].
Create a character sheet for {hero}: [name, age, strengths, weaknesses|looks, habits, secret].
Invent a mythology in which {s animals} [created the world|rule the sky|guard {emotion}].
What would a city of {s animals} be like?
Describe a magic system based on {substance}.
""")
