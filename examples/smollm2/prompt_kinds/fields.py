"""Kinds by field of knowledge: physics, chemistry, biology, art, music, sport, law, the mind, belief, environment."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= physics-problem tail=none follow=chat
A {vehicle} accelerates from {0-20} to {21-90} m/s in {2-15} seconds. [What is its acceleration?|How far does it
    travel?]
[How much force is needed to|What force does it take to] accelerate {2-900} kg at {1-9} m/s²?
A {object} falls from a height of {2-90} m. [How long does it fall?|How fast is it when it lands?|What is its potential
    energy if it weighs {1-9} kg?]
What is the [current|power] if the voltage is {3-240} V and the resistance is {2-90} ohms?
[How long does light take|How long does sound need] to travel {3-900} km?
[Why|How] does [a boat float|a balloon rise|a magnet stick to a fridge|a prism split light|hot air rise|a bicycle stay
    upright|a mirror reflect light|an echo arise|a spinning top stay up]?
[Define|Explain|Give the unit and formula of]
    [force|work|power|momentum|pressure|density|velocity|acceleration|voltage|frequency|torque|kinetic energy].
= chemistry tail=prose follow=ask
[Acid or base|Metal or not|Solid, liquid or gas at room temperature]: {element}?
What [is the chemical symbol for|are the properties of|is the atomic number of|is the use of] {element}?
What happens when [vinegar meets baking soda|iron rusts|sugar dissolves in water|a candle burns|water freezes|milk goes
    sour|salt melts ice|bread is toasted|copper turns green|soap meets grease]?
[Balance the equation|Complete the equation]: [H2 + O2 -> H2O|Fe + O2 -> Fe2O3|CH4 + O2 -> CO2 + H2O|N2 + H2 -> NH3|Na
    + Cl2 -> NaCl|Al + O2 -> Al2O3|C3H8 + O2 -> CO2 + H2O]
What is the difference between [an atom and a molecule|an acid and a base|a mixture and a compound|a metal and a
    non-metal|an ion and an isotope|a physical and a chemical change]?
What is {substance} [made of|used for]?
How [many grams of salt|much sugar] [do I need for|dissolves in] {1-9} litres of water?
= biology tail=prose follow=ask
What is the function of the {bodypart}?
How do [plants make food|fish breathe|birds find their way|muscles grow|wounds heal|bones heal|vaccines work|trees
    survive winter|whales sleep|snakes hunt|spiders build webs|ants find food|seeds know when to sprout]?
[Describe|Explain] the life cycle of [{a animals}|a butterfly|a frog|a fern|a mushroom|an oak tree].
[What eats|What are the natural enemies of|Where in the food chain are] {s animals}?
What would happen to [a forest|the sea|a garden|farms] if all {s animals} disappeared?
[What is the difference between|Compare] [a virus and a bacterium|mitosis and meiosis|arteries and veins|a plant cell
    and an animal cell|an insect and a spider|reptiles and amphibians|DNA and RNA|a fruit and a vegetable].
Are {s animals} [mammals|nocturnal|endangered|related to {s animals2}|good swimmers|intelligent]?
= astronomy tail=prose follow=ask
[How far is|How big is|What would it be like to stand on|How long is a day on|How many moons has|Could people live on]
    [the Moon|Mars|Venus|Mercury|Jupiter|Saturn|Uranus|Neptune|Pluto|Titan|Europa][, compared with Earth|]?
[How do|Why do] [stars shine|stars twinkle|planets orbit the sun|comets have tails|rockets reach space|astronauts
    float|satellites stay up|galaxies form]?
What can I see in the night sky [in {month}|from {city}|with a small telescope|without a telescope]?
If I weigh {40-110} kg on Earth, how much would I weigh on [Mars|the Moon|Jupiter]?
Who was the first person to [walk on the moon|fly in space|see Jupiter's moons|say that the Earth goes round the sun]?
= art tail=prose follow=ask
What is [impressionism|cubism|surrealism|pop art|the Baroque|Art Nouveau|perspective|a fresco|a still
    life|watercolour|street art|abstract art|Gothic architecture|a mosaic|calligraphy|minimalism]?
How [do I draw|would you paint|do I sketch|do I photograph] {a animals}[ step by step| with a pencil|]?
[Describe|Interpret|What do you know about] [the Mona Lisa|The Starry Night|The Scream|the Sistine Chapel|Guernica|the
    Venus de Milo|The Great Wave|Girl with a Pearl Earring|Water Lilies].
Which colours [go with {color}|make {color}|look calm|suit a room for {a job}]?
Suggest {few} subjects for a painting about {emotion}.
= music tail=prose follow=ask
What is [a chord|a scale|rhythm|a time signature|jazz|the blues|an opera|a symphony|counterpoint|harmony|a
    fugue|reggae|hip-hop|folk music|a metronome|a major key]?
How do I [tune a guitar|learn to read music|sing in tune|write a melody|practise the piano|choose an instrument|play a
    C major chord]?
[Recommend|List] {few} [songs|pieces|albums|instruments] for [{a event}|a long drive|a rainy {weekday}|someone who
    feels {feeling}|{audience}].
What is the difference between [a violin and a viola|jazz and blues|a piano and an organ|melody and harmony|rock and
    pop|an alto and a soprano]?
Who [was|were] [Mozart|Beethoven|Bach|Chopin|the Beatles|Louis Armstrong|Ella Fitzgerald|Vivaldi|Elvis Presley]?
= sport tail=prose follow=ask
[What are the rules of|How do you score in|How many players are in|How long is a match of|Who invented]
    [football|basketball|tennis|volleyball|cricket|rugby|baseball|ice hockey|handball|badminton|golf|water polo|table
    tennis]?
[What is|Explain] [the offside rule|a hat trick|a double fault|a penalty|a marathon|the Tour de France|the Olympic
    Games|a triathlon|a black belt|a slam dunk|a birdie].
How can I [get better at|start with|train for|teach a child]
    [swimming|running|tennis|football|chess|climbing|cycling|skiing|basketball]?
Is {hobby} [good for the heart|dangerous|expensive|suitable for children|an Olympic sport]?
= board-games tail=prose follow=ask
[How do you play|What are the rules of|What is a good strategy for|How do I win at]
    [chess|checkers|poker|dominoes|tic-tac-toe|Go|backgammon|hearts|charades|hide and
    seek|hangman|bingo|solitaire|rummy]?
How does the [knight|bishop|rook|queen|pawn|king] move in chess[, and what is it worth|]?
[Invent|Design] a [card game|board game|party game|playground game] [about {topic}|for {2-8} players|with {s animals}].
Name {few} games for [a long car ride|{a event}|two people|{audience}].
= law-politics tail=prose follow=ask
[What is|Explain|Who needs] [a contract|a will|a patent|a trademark|copyright|a warranty|a lease|a visa|a
    warrant|bail|a witness|a constitution|a veto|a referendum|a coalition|parliament|the separation of powers|the
    United Nations|the European Union]?
How [does someone become|is one elected] [president|mayor|prime minister|a judge] in {country}?
Can my landlord [raise the rent|forbid pets|enter my flat|keep the deposit] [in {country}|without notice|]?
What is the difference between [a civil and a criminal case|a law and a rule|left and right in politics|a president and
    a prime minister|a state and a nation]?
What should a contract [between {a job} and {a company}|for {a object}] contain?
= psychology tail=prose follow=ask
[Why|When] do people [{verb}|lie|procrastinate|blush|cry|laugh|gossip|feel {feeling}|forget names|fear {s animals}|like
    {topic}]?
[What is|Explain] [{concept}|introversion|body language|the unconscious|a habit|a phobia|attachment|group
    pressure|short-term memory|resilience|an optical illusion].
How can I [stop worrying|be more {quality}|build confidence|change a habit|remember names|control my anger|make
    decisions faster|become less {feeling}]?
What does it say about a person if they [like {color}|are always late|love {hobby}|talk to {s animals}|never {verb}]?
= mythology tail=prose follow=ask
Who [is|was] [Zeus|Athena|Thor|Odin|Loki|Anubis|Ra|Hercules|Odysseus|Medusa|Achilles|Venus|Mars|Poseidon|Apollo|King
    Arthur|Merlin|Robin Hood|Icarus|Pandora|Gilgamesh]?
[Tell|Retell] the [story|legend|myth] of [the Trojan Horse|Icarus|King Arthur|Robin Hood|the Minotaur|Pandora's
    box|Romulus and Remus|Atlantis|the Phoenix|the Sphinx|Narcissus|Orpheus][ for {audience}| in a {tone} tone| in
    {few} sentences|].
What do [dragons|unicorns|mermaids|giants|elves|phoenixes|trolls] [stand for|look like] in the stories of {country}?
Invent a [god|goddess|spirit] of {topic}.
= religion-culture tail=prose follow=ask
[What is|How do people celebrate|What do people eat at|Where does the custom come from:]
    [Christmas|Easter|Hanukkah|Ramadan|Diwali|Chinese New Year|Thanksgiving|Halloween|Carnival|Holi|Midsummer|the Day
    of the Dead|Oktoberfest|May Day|New Year's Eve]?
What are the basic ideas of [Buddhism|Christianity|Islam|Judaism|Hinduism|Taoism|Confucianism|Stoicism]?
What is [polite|rude|a typical greeting|a typical breakfast|a traditional dress|a good present] in {country}?
How do [weddings|birthdays|funerals|school days|weekends] in {country} differ from those in {country2}?
= environment tail=prose follow=ask
How [can|could] [I|{a company}|a school|{city}|{a job}] [save water|save energy|reduce waste|use less plastic|protect
    {s animals}|fight climate change]?
What is [the effect of {tech} on|the impact of {food} on|the role of {s animals} in] the environment?
[Explain|What are the causes of|What can be done about] [air pollution|deforestation|ocean plastic|noise
    pollution|melting glaciers|drought|the loss of insects|light pollution|food waste|rising sea levels].
Is it better for the environment to [travel by {vehicle}|eat less {food}|buy a new {object}|repair my {object}|shop
    online]?
= weather tail=prose follow=ask
What [is the weather like|should I wear|are the temperatures] in {city} in {month}?
[How|Why] [is snow formed|does it hail|do clouds form|is the sky sometimes green before a storm|does fog form|do we
    have seasons|is it colder on mountains]?
What is the difference between [weather and climate|fog and mist|a tornado and a hurricane|hail and sleet|a storm and a
    gale]?
[Write|Describe] the weather {setting} [like a poet|in two sentences|for a radio programme].
= etiquette tail=prose follow=ask
[Is it rude to|Is it okay to|When is it all right to] [ask about salary|leave a party early|send a message at
    night|bring {a animals} to {a event}|correct {relation}|refuse {food}|come late to {a event}|text at dinner|wear
    {color} to a wedding]?
What should I [wear to|say at|bring to] {a event}[ in {country}|]?
How much should I tip [{a job}|in {country}|for {dish}]?
How do I [introduce {relation} to {relation2}|end a conversation|decline an invitation|split the bill|address a
    professor]?
= language-facts tail=prose follow=ask
[Where is {language} spoken|How many people speak {language}|Which alphabet does {language} use|Is {language} related
    to {language2}]?
Where does the word "{noun}" come from?
[What is|Who speaks] [Esperanto|sign language|a dialect|a creole|Latin|slang|a palindrome|an acronym|a
    loanword|Braille]?
Why do languages [die|change|have genders|borrow words|sound so different]?
= single-fact tail=none follow=chat
[What is the capital of {country}|What currency is used in {country}|Which continent is {country} on|What language do
    they speak in {city}|Which country is {city} in]?
[How many legs does {a animals} have|How fast can {a animals} run|What colour is {a animals}|How heavy is {a
    animals}|What is a baby {animals} called|What is a group of {s animals} called]?
[When was {figure} born|Where was {figure} from|In which century did {figure} live|What language did {figure} speak]?
[When did {history} begin|How long did {history} last|Where is {landmark}|Which river flows through {city}]?
[Who wrote|Who is the author of] [Don Quixote|War and Peace|Hamlet|Pride and Prejudice|The
    Odyssey|Faust|Moby-Dick|Frankenstein|Les Misérables|Alice in Wonderland|The Divine Comedy|Dracula|Treasure
    Island|Robinson Crusoe]?
= search-query tail=none follow=ask
[best|cheap|good] [time to visit {country}|{object} for {audience}|food in {city}|books about {history}|way to
    {goal}|gift for {relation}]
[{dish}|{food} {food2}] recipe[ easy| quick| vegetarian|]
{concept} [definition|example|vs {concept2}|explained simply]
how to {goal}
{city} [weather {month}|things to do|airport to city|history]
{proglang} [{taskthird}|tutorial|vs {proglang2}|error handling]
{health} [remedies|causes|how long]
{figure} [biography|quotes|inventions|short summary]
= foreign-request tail=none follow=none
[Peux-tu m'expliquer|Explique-moi|Qu'est-ce que] [la photosynthèse|la gravité|l'inflation|la démocratie|un
    algorithme|la Révolution française|l'effet de serre|un trou noir] [en {2-6} phrases |simplement |]?
[Écris|Rédige] [un poème|une histoire courte|un e-mail|une lettre|une blague] [sur|à propos de] [l'amour|la
    mer|l'hiver|un chat|{city}|l'amitié|un voyage à {city2}].
[¿Qué es|Explica|¿Cómo funciona] [la fotosíntesis|la gravedad|internet|la democracia|un ordenador|el ciclo del agua|un
    volcán] [en {2-6} frases|para niños|]?
[Escribe|Cuéntame] [un cuento|un poema|una carta|un chiste|un correo] sobre [el mar|un perro|{city}|la amistad|el
    verano|un viaje a {city2}].
[Erkläre mir|Was ist|Wie funktioniert] [die Schwerkraft|ein Computer|das Internet|die Demokratie|ein Vulkan|der
    Wasserkreislauf|ein Akku] [in {2-6} Sätzen|für Kinder|]?
[Schreibe|Erzähle mir] [ein Gedicht|eine kurze Geschichte|einen Brief|einen Witz|eine E-Mail] über [das Meer|einen
    Hund|{city}|Freundschaft|den Winter|eine Reise nach {city2}].
[Che cos'è|Spiegami] [la fotosintesi|la gravità|un algoritmo|il Rinascimento|un vulcano] [in {2-6} frasi|in modo
    semplice|].
[Scrivi|Raccontami] [una poesia|una storia|una barzelletta] [su {city}|sul mare|su un gatto|sull'amicizia|sull'estate].
[Explica|O que é] [a fotossíntese|a gravidade|a internet|a democracia] [em {2-6} frases|para crianças|]?
""")
