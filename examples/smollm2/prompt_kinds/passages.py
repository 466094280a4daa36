"""Texts that a request carries along: short passages, reviews, messages, notes and records, made by templates."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import lines, phrases

LISTS = {
    "passage": tuple(lines("""
{cap name} {surname} opened {a company} in {city} in {1985-2022}. At first there were only {2-9} customers a day, and
    the young owner thought about giving up. [A newspaper article changed everything|Then a film crew came by|A
    neighbour had an idea]: within {2-9} months people stood in line. Today {name} employs {3-60} people, gives courses
    about {hobby} on {weekday}s, and plans a second shop in {city2}.
The city council of {city} decided on {weekday} to build a new {vehicle} line to the airport. The work will begin in
    {month} and take {2-7} years. The cost is estimated at {20-900} million. Supporters say that it will reduce
    traffic, while {s job} fear noise and dust. "{bare sentence}", said {name} {surname}, who lives near the old
    station.
Dear {name}, thank you for your message of {month} {1-28}. We are sorry to hear that {complaint}. We have passed your
    letter to our workshop in {city} and will send you {a object} free of charge. You should receive it by {weekday}.
    If you have any questions, call {name2} at 555-0{100-199}, between {8-10} am and {3-6} pm. Kind regards, {name3}
    {surname}, {brand}.
A {animals} and {a animals2} lived [on the same farm|by the same river|in the same forest]. The {animals} was {adj},
    the {animals2} was {adj2}, and they rarely agreed. One winter the food ran out. "{bare sentence}", said the
    {animals}. So they walked for {few} days until they found {food} under the snow, and from that day on they shared
    everything they had.
{cap hobby} has become more popular in recent years. A survey among {200-9000} people in {country} found that {20-80}
    percent had tried it at least once, and that most of them did so to relax. {cap s job} were especially interested.
    Experts recommend starting slowly, with no more than {10-60} minutes a day, and warn that good equipment, such as
    {a object}, can cost more than {50-900} dollars.
When {name} was {6-15} years old, the family moved from {city} to {city2}. {name} did not speak {language} and missed
    old friends. A neighbour, {a job} called {name2}, lent the child {a object} and taught {a tone} songs. Years later
    {name} became {a job2} and wrote a book about those days. It was translated into {3-30} languages.
Last {weekday} I bought {a object} from {brand}. It looked good in the shop, but after {2-20} days {adj} noises
    started. I wrote to the company and got an answer within {1-9} hours: they offered me a new one or {10-50} percent
    of the price. I took the new one, and it works well so far. The staff were friendly, but I still think that
    {20-400} dollars is too much for it.
To make {dish}, you need {100-500} grams of {food}, {2-6} {food2} and a little salt. Cut the {food} into small pieces
    and let it rest for {5-30} minutes. Meanwhile heat the oven to {150-230} degrees. Mix everything, put it in a dish,
    and bake it for {15-60} minutes. Serve it with {food3}. It keeps for {2-5} days in the fridge and can be frozen.
Minutes of the meeting on {weekday}, {month} {1-28}. Present: {name}, {name2} and {name3}. {name} reported that sales
    of the {object} rose by {2-40} percent. {name2} suggested advertising in {city}; this was agreed. {name3} will find
    out the cost by {weekday2}. The {event} is moved to {month2}. The next meeting takes place in two weeks at {8-11}
    o'clock.
{fact} {sentence} Some people say that {topic} [{has topic} changed this|{do topic} not matter here|{is topic} the
    reason], but {s job} disagree. In {country}, {a artifact} is [still part of daily life|hardly ever seen today|a
    common present at {a event}].
{fact} {fact2} {fact3} All three can be seen in the museum of {city}, which opened in {1950-2020} and has {20-900}
    visitors a day. On {weekday}s the entrance is free.
Welcome to the {company} in {city}! Please read these rules. Children under {6-12} must be accompanied. {cap s animals}
    are not allowed. Do not touch the {s object}. Photos are allowed without flash. The {artifact} on the second floor
    is closed until {month}. If you lose {a object2}, ask {name} at the entrance. Tickets cost {3-25} euros, and {2-15}
    for students. We hope you enjoy your visit!
Hi {name}, I hope you are well. I arrived in {city} on {weekday} and I am staying with {name2}, who works as {a job}.
    The weather is {adj}, the people are {quality}, and the {food} is the best I ever had. Yesterday we went to a
    {event} and I lost my {object}, but someone brought it back! On {weekday2} we take the {vehicle} to {city2}. I will
    be home in {2-9} days. Could you feed the {animals} until then? Love, {name3}.
{name} had always wanted to {goal}. For {2-20} years there was a reason not to: the job as {a job}, the money, the
    weather. Then, one {weekday} in {month}, {relation} gave {name} {a object} and said: "Now or never." The first week
    was hard. The second was worse. But after {2-9} months {name} could not imagine a life without it.
Product manual, page {2-40}. Before you use the {object} for the first time, read this page. Keep it dry and away from
    {s animals}. Charge it for {2-9} hours. Press the {color} button for {2-5} seconds until the light turns {color2}.
    If the light flashes, wait {1-10} minutes and try again. Clean it with a soft cloth only. The warranty lasts {1-5}
    years and does not cover damage by {substance}. Made in {country}.
Match report: {city} beat {city2} by {1-5} to 0 on {weekday} evening in front of {2-60} thousand people. {name}
    {surname}, a former {job}, scored in minute {3-44} after a {adj} mistake of the goalkeeper. In the second half it
    rained, and nobody played well. "{bare sentence}", said the coach. The next match is in {month} against {city3}.
{cap subject} and {subject2} are often taught apart, but they belong together, argues {name} {surname} of the
    University of {city}. In a course for {20-300} students, the two were taught in one room by two teachers. After
    {2-9} months, {20-90} percent of the students said that they understood more. Critics say that the course cost
    {10-90} thousand euros and that {topic} {is topic} more important.
The house at {1-99} Garden Street was built in {1850-1950} for {a job} and has {3-12} rooms. The kitchen was renovated
    in {2001-2022}; the roof is {adj}. There is a small garden with {a artifact} and an old tree. The school is {2-20}
    minutes away by {vehicle}. The owners ask for {90-900} thousand dollars. Viewings are possible on {weekday}s;
    please call {name} {surname} at 555-0{100-199}.
Once a year, in {month}, the people of a village in {country} carry {a artifact} through the streets. Nobody knows how
    the custom began. Some say that {a job} promised it in a storm, others that it has to do with {s animals}. There is
    music, there is {food} and {food2}, and at midnight the mayor says: "{bare sentence}". Last year {200-9000} guests
    came, twice as many as before.
Scientists at the University of {city} observed {10-900} {s animals} for {2-9} years. They found that the animals sleep
    {3-12} hours a day and prefer {food} to {food2}. [Young|Older] {s animals} were more {adj} than expected. "We did
    not believe it at first", says {name} {surname}, who led the study. The results will be published in {month}. A
    similar project on {s animals2} is planned in {country}.
{name}: Have you heard that {brand} is closing? {name2}: No! Why? {name}: They say that {topic} {is topic} to blame.
    The owner, {a job}, wants to move to {city}. {name2}: That's a pity. I bought my {object} there. {name}: Me too,
    {2-20} years ago. {name2}: Shall we go there on {weekday} and say goodbye? {name}: Good idea. I'll bring {food}.
The {brand} hotel lies {2-40} minutes by {vehicle} from the centre of {city}. It has {12-220} rooms, a restaurant and a
    garden. Breakfast, with {food} and {food2}, is served from {6-8} to {9-11}. Guests can borrow {s object} free of
    charge. Dogs are welcome for {5-30} euros a night. In {month} the house is closed. Rooms can be booked online or by
    phone; the reception speaks {language} and English.
Notice to all residents: on {weekday}, {month} {1-28}, between {7-10} am and {1-5} pm, the water will be turned off
    because of repairs. Please fill a few bottles in time. The lift is also out of order; {a job} will look at it on
    {weekday2}. Bicycles in the hallway must be removed, otherwise they will be taken to the cellar. Questions? Ask
    {name} {surname}, second floor.
{cap landform}: {sentence} It was early, and {name} was the only {job} on the road. The {vehicle} had not come.
    {sentence2} In the distance someone was [singing|laughing|calling a name]. {name} put down the {object}, looked at
    the sky, and thought of {city}. {sentence3}
""")),
    "review": phrases("""
The {object} broke after {2-9} days, and nobody answered my emails.; Great {company}! The staff were {quality} and
{tone}.;
I expected more for {20-300} dollars, but it does the job.; Best {dish} in {city}, we will come back!; Not bad, not
great. The {food}
was fine and the service slow.; I love my new {object}, it is {adj} and easy to use.; Never again. {cap complaint}.;
What a film! {cap hero} {plot}, and I cried at the end.; The book is too long, and the {job} is boring.; My {relation}
hates it, I love it.;
Delivery took {2-9} weeks, but the {object} itself is perfect.; Oh great, another update that makes the {object}
slower.;
The room was {adj}, the breakfast with {food} excellent, the bed a disaster.; {few} stars, because it came in the wrong
colour.;
I have used it for {2-20} months now and have no complaints.; The course on {subject} was a waste of time and money.;
{cap name} explained everything patiently, thank you!; It works as described.; The {event} was well organised, but far
too loud."""),
    "message": phrases("""
Can we move the {event} to {weekday}? {cap relation} is ill.; I was sad that you did not come to the {event}.;
Please send me the invoice for the {object} again.; Congratulations! You have won {a object}. Click here now!; I can't
believe
you told {name} about {topic}.; My {object} does not turn on. What can I do?; Thank you so much for the {object}, I
love it!;
Do you have time to help me move on {weekday}?; {cap complaint}. I want my money back!; Reminder: your appointment with
the {job} is
on {weekday} at {8-11}:{10-50}.; We need more {food} for the {event}.; I got the job as {a job}!!!; Why did nobody tell
me that the
{vehicle} is late?; I would like to know whether you also sell {s object}.; Let's go to {city} in {month}, what do you
think?;
The password for my account does not work any more.; I'm sorry, I forgot about {weekday}. It won't happen again.;
Could you lend me {20-500} dollars until {weekday}?; Your parcel is at the neighbour's, the {job} on the second
floor."""),
    "casual": phrases("""
hey, can u send me the {object} pls; sorry, can't make it on {weekday}; gimme the report by {weekday}; that's not my
problem, ask {name};
I need this asap; your idea is dumb; I want more money; you forgot to pay me; what's taking so long with the {object}?;
no way I'm doing that;
we messed up the order; thanks a bunch for the help with the {event}; I'm not coming to the {event}, I'm {feeling};
stop calling me;
this {object} is junk and I want my cash back; let's talk about {topic} sometime; I've no clue what you mean; {name} is
always late;
the boss wants you to redo the {noun} thing; sure, whatever; you guys never answer; tell {name} to hurry up; I quit"""),
    "notes": tuple(
        text.replace("/", "\n")
        for text in (
            "- {event} on {weekday}, {5-80} guests/- {name}: buy {food}/- {name2}: invite {relation}/- budget {50-900}",
            "{month} {1-28}/{name}, {name2}, {name3}/{object}: too expensive?/ask {a company}/next meeting {weekday}",
            "todo/call {job}/{name} sends {noun} list/order {s object} ({2-40})/decide: {choice}",
            "* customers want {a adj} {object}/* {topic} - discuss again/* {name} away until {month}/* test in {city}",
        )
    ),
    "record": phrases("""
{cap name} {surname}, {job}, born {month} {1-28}, {1950-2005}, {city}, phone 555-0{100-199}, email {name}@example.com;
Order {10000-99999}: {2-40} {s object} at {3-90} euros, ship to {name} {surname}, {1-99} Garden Street, {city}, by
{weekday};
Contact: {name2} {surname} ({quality}, speaks {language}), {brand}, {city}. Mail: info@example.com, 555-0{100-199};
Flight {100-999}, {city} to {city2}, {month} {1-28}, {10-23}:{10-59}, seat {1-38}A, passenger {name} {surname}"""),
    "svo": phrases("""
The {job} repaired the {object}.; {name} wrote a letter to {relation}.; The {animals} chased the {animals2}.; {name}
will sell the
{object} on {weekday}.; The {object} was made in {country}.; {name} has eaten all the {food}.; The {s job} are building
{a artifact}.;
My {object} was stolen in {city}.; {name} teaches {subject} in {city}.; The {company} offered {name} a job.; A {adj}
{animals} woke the
{s job}.; {name} and {name2} painted the {artifact} {color}.; The {event} will be opened by {a job}.; Someone has moved
my {object}."""),
    "broken": phrases("""
He don't like {food}.; She have {2-9} {animals}.; I am agree with {name}.; We was in {city} last {month}.; Their going
to the {event}.;
I has never seen {a animals}.; Me and {name} goes to {city}.; The {s animals} is hungry.; Its a {adj} {noun}, isnt it?;
He speak {language}
very good.; I look forward to meet you on {weekday}.; She is more taller than {name}.; There is many {s object} here.;
I didn't knew that {name}
is {a job}.; If I will see {name}, I tell him.; He said me that he is {feeling}.; Yesterday I go to the {company}.; How
much {s object} do you has?;
I am living in {city} since {2001-2022}.; She can sings and plays {a object}.; Your the best {job} in {city}.; I could
of been {a job}.;
Who's {object} is this.; The {job} gived me {a object}.; We discussed about {topic} for {2-6} hour.; This {s object}
are to expensive."""),
    "unpunctuated": phrases("""
hello {name} how are you did you see my {object}; although it was {weekday} {name} went to work; we need {food} {food2}
and {food3};
my friend {name} who is {a job} lives in {city}; yes i think so said {name} but not on {weekday}; after the {event} we
took the {vehicle} home;
{name} asked where is my {object}; if you come to {city} call me; the {animals} which was {adj} ran away; however
{topic} {is topic} a good thing"""),
    "phrase": phrases("""
Where is the train station?; I would like {food}, please.; How much does the {object} cost?; My name is {name}.; I
don't understand.;
See you on {weekday}.; Happy birthday!; I am {a job}.; Do you speak English?; The {animals} is {color}.; I am looking
for {a object}.; Good luck!;
Two tickets to {city}, please.; I'm allergic to {food}.; What time is it?; Can you help me?; I love {hobby}.; The bill,
please.; Get well soon!"""),
    "foreign": phrases("""
Où est la gare, s'il vous plaît ?; Je voudrais un café et un croissant.; Il fait beau aujourd'hui.; Nous avons deux
chats et un chien.;
J'habite à {city} depuis {2-20} ans.; Merci beaucoup pour votre aide.; Quel âge avez-vous ?; Le livre est sur la table.;
Ich hätte gern ein Stück Kuchen.; Wo ist der Bahnhof?; Mein Bruder wohnt in {city}.; Das Wetter ist heute schlecht.;
Wie spät ist es?;
Ich lerne seit {2-12} Monaten Deutsch.; Der Zug nach {city} hat Verspätung.; Guten Appetit!; ¿Dónde está la
biblioteca?; Me gusta mucho el verano.;
Tengo {2-60} años y vivo en {city}.; ¿Cuánto cuesta este libro?; Mañana vamos a la playa.; No hablo español muy bien.;
La casa es pequeña pero bonita.;
Vorrei un bicchiere d'acqua.; Dove abiti?; Oggi fa molto caldo.; Mi piace la musica.; Ho perso il treno per {city}.;
Buon compleanno, {name}!;
Onde fica a estação?; Eu gosto de ler livros.; Amanhã vai chover em {city}.; Ik heb een rode fiets.; Waar is het
station?; Carpe diem.; Veni, vidi, vici."""),
    "blank": phrases("""
{cap name} went to ___ to buy {food}.; The {animals} is ___ than the {animals2}.; I have lived in {city} ___
{2001-2022}.; She ___ a letter every {weekday}.;
If it rains, we ___ at home.; {cap country} is famous for its ___.; A {job} needs a ___ to work.; The opposite of {adj}
is ___.; He is afraid ___ {s animals}.;
In {month}, the days are ___.; There isn't ___ {food} left.; We arrived ___ {city} at noon.; {name} is ___ {job} I
know.; I'd rather ___ than {verb}.;
___ you ever been to {country}?; The {object} is made ___ wood.; My {object} is broken, so I ___ a new one."""),
    "idiom": phrases("""
break the ice; a piece of cake; under the weather; spill the beans; hit the nail on the head; once in a blue moon; cost
an arm and a leg;
the ball is in your court; bite the bullet; let the cat out of the bag; call it a day; on cloud nine; burn the midnight
oil; cut corners;
a blessing in disguise; the elephant in the room; beat around the bush; back to the drawing board; jump on the
bandwagon; in hot water;
time flies; better late than never; see eye to eye; pull someone's leg; keep an eye on; kill two birds with one stone;
a drop in the ocean;
turn over a new leaf; the tip of the iceberg; rain cats and dogs; add fuel to the fire; miss the boat; go the extra
mile; at the eleventh hour"""),
    "riddleadj": phrases("""
small; round; thin; silent; cold; invisible; hollow; wooden; {color}; heavy; quick; soft; empty; {adj}"""),
    "plantword": phrases("""
tomato plant; basil; rose bush; orchid; cactus; lemon tree; lawn; fern; ivy; lavender; hedge; apple tree"""),
    "petanimal": phrases("""
puppy; kitten; dog; cat; rabbit; hamster; parrot; goldfish; guinea pig; turtle; budgie; pony; gecko"""),
}  # fmt: skip
