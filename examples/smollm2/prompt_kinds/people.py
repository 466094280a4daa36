"""Word lists for slots: people, what they do, feel and need, and the manners of writing."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import phrases

LISTS = {
    "name": phrases("""
Anna; Ben; Carla; David; Elena; Frank; Grace; Henry; Isabel; Jack; Karin; Leo; Maria; Nina; Oliver; Paula; Quentin;
Rosa;
Sam; Tara; Umar; Vera; Walter; Ximena; Yusuf; Zoe; Ahmed; Bianca; Chen; Dmitri; Emeka; Fatima; Giulia; Hiro; Ingrid;
Jamal;
Kofi; Lena; Miguel; Noor; Olga; Pedro; Priya; Ravi; Sofia; Tom; Ursula; Victor; Wei; Yuki; Amir; Beatrice; Claire;
Diego;
Erik; Felix; Hannah; Ivan; Julia; Kate; Lucas; Mei; Nadia; Oscar; Peter; Rachel; Simon; Theresa; Lily; Max; Ella;
Arthur"""),
    "surname": phrases("""
Miller; Schmidt; Rossi; Garcia; Dubois; Novak; Jensen; Kowalski; Papadopoulos; Tanaka; Kim; Nguyen; Patel; Khan; Okafor;
Silva; Johnson; Brown; Wilson; Taylor; Clark; Lewis; Walker; Hall; Young; King; Wright; Hill; Green; Baker; Carter;
Evans"""),
    "job": phrases("""
teacher; nurse; doctor; dentist; pharmacist; electrician; plumber; carpenter; welder; mechanic; bus driver; pilot;
flight attendant; train driver; firefighter; police officer; paramedic; lawyer; judge; accountant; bank clerk; cashier;
sales assistant; waiter; chef; baker; butcher; farmer; gardener; florist; beekeeper; fisherman; forester; veterinarian;
zookeeper; biologist; chemist; physicist; astronomer; geologist; mathematician; statistician; data analyst; data
scientist;
software developer; web designer; graphic designer; game designer; systems administrator; network engineer; tester;
project manager; product manager; office manager; receptionist; secretary; translator; interpreter; journalist; editor;
novelist; poet; librarian; archivist; museum guide; historian; architect; civil engineer; surveyor; photographer;
painter;
sculptor; musician; composer; conductor; actor; film director; dancer; fashion designer; hairdresser; tailor; jeweller;
social worker; psychologist; coach; personal trainer; referee; lifeguard; tour guide; hotel manager; real estate agent;
insurance agent; marketing manager; recruiter; consultant; entrepreneur; politician; diplomat; soldier; sailor;
astronaut;
lighthouse keeper; clockmaker; puppeteer; magician; detective; park ranger; weather forecaster; student; retired
teacher"""),
    "role": phrases("""
{job}; {job}; {job}; pirate captain; medieval knight; wizard; court jester; time traveller; friendly robot; ship's cook;
Victorian detective; grumpy old cat; wise grandmother; talking tree; space explorer; museum ghost; fortune teller;
dragon;
stand-up comedian; sports commentator; motivational speaker; travel writer; food critic; strict but fair teacher; alien;
medieval monk; explorer in the Arctic; radio host; fairy godmother; vampire who hates the night; patient tutor;
poet"""),
    "audience": phrases("""
a five-year-old; a ten-year-old; a teenager; a high school student; a beginner; my grandmother; a busy manager;
someone who knows nothing about it; a college student; a curious child; a tourist; a new employee; an expert;
a group of children; people who are short of time; my little brother; a class of twelve-year-olds; a general
audience"""),
    "relation": phrases("""
my sister; my brother; my best friend; my neighbour; my boss; my colleague; my roommate; my mother; my father; my
teacher;
my landlord; a client; my cousin; my grandmother; my uncle; my daughter; my son; my partner; an old friend; my
mentor"""),
    "feeling": phrases("""
happy; sad; nervous; excited; bored; lonely; proud; angry; jealous; tired; overwhelmed; curious; hopeful; confused;
grateful; homesick; stressed; ashamed; relieved; disappointed; inspired; worried; calm; restless; shy; motivated"""),
    "emotion": phrases("""
joy; sadness; hope; fear; anger; love; loneliness; pride; envy; gratitude; nostalgia; wonder; courage; regret; longing;
grief; curiosity; boredom; trust; surprise; peace; freedom; friendship; time; silence; home; memory; change;
patience"""),
    "tone": phrases("""
friendly; formal; cheerful; serious; funny; polite; warm; confident; dramatic; sarcastic; poetic; simple; professional;
enthusiastic; calm; humorous; mysterious; persuasive; gentle; casual; optimistic; gloomy; playful; old-fashioned"""),
    "genre": phrases("""
fantasy; science fiction; mystery; horror; comedy; romance; adventure; fairy tale; western; historical; detective;
fable;
ghost; crime; superhero; children's; coming-of-age; bedtime; pirate; sports; survival; time travel; myth-like"""),
    "hero": phrases("""
{a job}; {a animals}; a girl named {name}; a boy named {name}; an old man called {name}; a robot; a lost {animals};
a young {job}; {name} and her dog; a talking {animals}; a {feeling} {animals}; a {job} named {name};
a lonely lighthouse keeper; a shy dragon; a forgetful wizard; a clever princess; a ghost; 
a new kid at school; a cat that can read; a retired superhero; a traveller from the future; a small cloud"""),
    "setting": phrases("""
in {city}; in {country}; on a small island; in a forest; in a haunted house; on a space station; under the sea;
in a desert; in a small village; on a train to {city}; in an old library; in a bakery; at the top of a mountain;
in a castle; on a pirate ship; in a school; in the year {2050-2500}; during a thunderstorm; on a farm; in a museum at
night;
at the bottom of a well; in a hotel in {city}; in a city without colours; on the moon; in a garden; at an airport"""),
    "plot": phrases("""
finds {a object}; loses {a object}; makes an unexpected friend; learns to trust others; solves a mystery;
discovers a hidden door; gets lost on the way home; wakes up with a strange power; has to keep a secret;
enters a cooking contest; meets {a animals}; receives a letter from a stranger; tells a lie and regrets it;
wants to learn {hobby}; misses the last train; saves the day by accident; finds an old map; faces a great fear;
must choose between two friends; tries to win a race; invents a strange machine; hears a voice in the wall;
breaks {a object} by accident; wants to see snow for the first time; is late for an important day"""),
    "event": phrases("""
birthday party; wedding; graduation; farewell party; team meeting; product launch; job interview; school trip; picnic;
barbecue; family reunion; charity run; book club evening; concert; film night; housewarming; conference; workshop;
job fair; garden party; anniversary dinner; baby shower; company outing; science fair; talent show; open day;
retirement"""),
    "problem": phrases("""
I keep forgetting people's names; I can't fall asleep; I spend too much time on my phone; I am always late;
I don't know what to study; my friend ignores my messages; my boss gives me too much work; I am afraid of flying;
I am nervous about a presentation; I can't save any money; my neighbour plays loud music; I argue a lot with my brother;
I moved to a new city and know nobody; I want to change careers; I procrastinate all the time; I failed an exam;
my roommate never cleans; I feel tired all day; I don't like my job; I have trouble saying no; my plants keep dying;
my dog barks at everything; my child refuses to eat vegetables; I want to eat healthier but love sweets;
I get distracted when I study; I have a first date on Friday; I forgot my friend's birthday; my laptop is very slow;
I am learning {language} but feel stuck; I start a new job on Monday; I can't decide between two job offers;
I feel {feeling} lately; I compare myself with others; I have to give a speech at a {event}"""),
    "verb": phrases("""
dance; sing; swim; fly; sleep; dream; laugh; cry; whisper; cook; bake; paint; read; write; travel; jump; run; climb;
dig; hide;
listen; wait; forget; remember; lie; cheat; argue; apologise; smile; complain; gossip; shout; yawn; sneeze; juggle;
whistle;
drive a car; ride a bicycle; play chess; tell jokes; keep secrets; count to ten; see in the dark; walk backwards; speak;
solve puzzles; learn tricks; wear hats; drink coffee; use a computer; do magic; make friends; stay awake; get lost;
open a door; build a nest; send a letter; change colour; stand on one leg; work at night; share food; say no; win a
race"""),
    "adj": phrases("""
small; large; tiny; huge; old; new; young; ancient; modern; shiny; dusty; rusty; soft; hard; smooth; rough; heavy;
light; quiet;
loud; bright; dark; warm; cold; wet; dry; clean; dirty; cheap; expensive; rare; common; strange; ordinary; beautiful;
ugly; simple;
complicated; useful; useless; broken; perfect; golden; wooden; round; square; colourful; pale; empty; full; fast; slow;
lazy; clever;
brave; shy; gentle; wild; friendly; hungry; sleepy; happy; sad; curious; stubborn; proud; nervous; cheerful; elegant;
clumsy;
mysterious; magical; dangerous; harmless; fragile; sturdy; waterproof; foldable; portable; handmade; foreign; famous;
forgotten;
invisible; gigantic; delicious; bitter; sweet; sour; fresh; stale; crooked; sharp; blunt; comfortable; reliable;
unusual"""),
    "goal": phrases("""
learn {language}; run a marathon; save for a holiday; read more books; wake up earlier; drink more water; lose some
weight;
build a habit of exercise; learn to play the guitar; learn to code; write a novel; start a small business; get fitter;
find a new job; make new friends; grow vegetables on a balcony; reduce food waste; spend less time online; cook at home;
learn {hobby}; prepare for an exam in {subject}; organise a {event}; move to {city}; sleep better; keep a diary;
speak in public with confidence; pass a driving test; declutter my home; improve my handwriting; start a podcast"""),
    "quality": phrases("""
hardworking; creative; reliable; patient; curious; honest; punctual; friendly; ambitious; flexible; organised;
brave"""),
    "material": phrases("""
wood; oak; bamboo; steel; stainless steel; aluminium; copper; brass; glass; leather; cotton; wool; linen; silk; felt;
rubber;
paper; cardboard; recycled plastic; ceramic; marble; clay; cork; velvet; titanium; carbon fibre; straw; wax; stone"""),
    "brand": phrases("""
Lumora; Brightleaf; Nordwind; Solano; Pebble & Co; Greenhaven; Quickstep; Velto; Aurora; Maplewood; Bluefin; Zephyr;
Northstar; Little Fern; Copperpot; Skylark; Tidewater; Moonbeam; Ironwood; Sunnyside; Fable; Cloudberry; Rustica;
Nimbus"""),
    "month": phrases("""
January; February; March; April; May; June; July; August; September; October; November; December"""),
    "weekday": phrases("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "few": phrases("three; four; five; six; seven; eight; ten; 3; 4; 5; 6; 7; 10"),
    "excuse": phrases("""
I missed our appointment; I was late for the meeting; I sent the wrong file; I forgot to call back; I broke your
{object};
I cannot come to the {event}; the delivery was late; I raised my voice yesterday; I double-booked the room;
I lost the book you lent me; I misunderstood the instructions; I did not answer for two weeks; I made a mistake in the
report"""),
    "complaint": phrases("""
the {object} I ordered arrived broken; my order never arrived; I was charged twice; the room was dirty; the food was
cold;
the train was {2-5} hours late; the heating has not worked for {3-20} days; my luggage was lost; the {object} stopped
working after {2-6} weeks; the staff were rude; the internet has been down since {weekday}; the noise from the building
site keeps me awake;
the colour is different from the picture; nobody answers my emails; the contract was changed without notice"""),
    "choice": phrases("""
a cat or a dog; tea or coffee; the mountains or the sea; a book or a film; an early start or a late night; a city or a
village; cash or card; {a vehicle} or {a vehicle2}; {city} or {city2}; {hobby} or {hobby2}; working from home or in an
office; renting or buying a home; summer or winter; studying {subject} or {subject2}; a big party or a small dinner;
{country} or {country2}; a laptop or a tablet; a used car or a new one; sweet or salty snacks; pasta or pizza"""),
}  # fmt: skip
