"""Word lists for slots: the world's things, places and subjects."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import phrases

LISTS = {
    "science": phrases("""
photosynthesis; gravity; evaporation; plate tectonics; the water cycle; natural selection; the greenhouse effect;
magnetism; friction; static electricity; nuclear fission; nuclear fusion; the speed of light; black holes; red shift;
the Doppler effect; osmosis; diffusion; DNA replication; mitosis; the immune system; vaccination; antibiotics; enzymes;
the periodic table; covalent bonds; acids and bases; oxidation; crystallisation; fermentation; sound waves; lenses;
rainbows; lightning; tornadoes; hurricanes; earthquakes; volcanoes; tides; ocean currents; eclipses; meteors; comets;
the phases of the moon; the solar system; the life cycle of a star; galaxies; the Big Bang; dark matter; relativity;
quantum mechanics; entropy; the conservation of energy; Newton's laws of motion; buoyancy; air pressure; lift and drag;
semiconductors; lasers; superconductors; batteries; solar cells; wind turbines; hydropower; fossil fuels; the ozone
layer;
acid rain; biodiversity; food chains; symbiosis; pollination; seed germination; hibernation; migration; camouflage;
metamorphosis; the nervous system; the heart; blood types; digestion; sleep cycles; memory; the senses; hormones;
genetics; mutations; cloning; stem cells; bacteria; viruses; fungi; coral reefs; rainforests; deserts; glaciers;
fossils;
the carbon cycle; the nitrogen cycle; soil erosion; radioactivity; half-life; isotopes; prime numbers; probability;
the Pythagorean theorem; logarithms; fractals; pi; infinity; the scientific method; statistics; correlation and
causation"""),
    "tech": phrases("""
the internet; Wi-Fi; Bluetooth; GPS; cloud computing; blockchain; encryption; passwords; two-factor authentication;
search engines; web browsers; cookies on websites; email; spam filters; computer viruses; firewalls; operating systems;
databases; machine learning; neural networks; chatbots; speech recognition; computer vision; recommendation systems;
virtual reality; 3D printing; drones; self-driving cars; electric cars; smartphones; touch screens; digital cameras;
barcodes; QR codes; microwave ovens; refrigerators; jet engines; diesel engines; elevators; printing presses; radios;
television; satellites; rockets; telescopes; microscopes; X-rays; MRI scanners; hearing aids; pacemakers; robots;
open source software; version control; compilers; APIs; RAM; hard drives; graphics cards; file compression; backups;
quantum computers; fibre optic cables; streaming video; social media; video games; e-readers; smart watches; heat
pumps"""),
    "concept": phrases("""
inflation; supply and demand; compound interest; opportunity cost; a recession; a monopoly; free trade; a stock market;
a mortgage; insurance; taxes; a budget deficit; cryptocurrency; democracy; a republic; a constitution; federalism;
separation of powers; human rights; freedom of speech; the rule of law; a jury; civil disobedience; feminism; socialism;
capitalism; nationalism; globalisation; colonialism; urbanisation; propaganda; censorship; diplomacy; a trade union;
irony; a metaphor; a simile; personification; foreshadowing; an unreliable narrator; a sonnet; a haiku; satire;
empathy; confirmation bias; procrastination; mindfulness; emotional intelligence; burnout; motivation; peer pressure;
the placebo effect; cognitive dissonance; classical conditioning; self-esteem; creativity; critical thinking;
utilitarianism; stoicism; existentialism; free will; the social contract; justice; happiness; friendship; courage;
a carbon footprint; renewable energy; sustainability; recycling; organic farming; overfishing; deforestation;
recursion; an algorithm; object-oriented programming; a hash table; a binary search; a linked list; a variable;
a gene; an ecosystem; an atom; a molecule; an orbit; a decimal; a fraction; a percentage; an average; a ratio"""),
    "history": phrases("""
the Roman Empire; ancient Egypt; ancient Greece; the Silk Road; the Viking Age; the Crusades; the Black Death;
the Renaissance; the Reformation; the Age of Exploration; the Ottoman Empire; the Mongol Empire; the Inca Empire;
the Aztec civilisation; the Ming dynasty; feudal Japan; the Scientific Revolution; the Enlightenment;
the American Revolution; the French Revolution; the Industrial Revolution; the Napoleonic Wars; the American Civil War;
the abolition of slavery; the Gold Rush; the unification of Germany; the Meiji Restoration; the First World War;
the Russian Revolution; the Great Depression; the Second World War; the Cold War; the Space Race; the Berlin Wall;
the civil rights movement; the independence of India; apartheid; the Suez Canal; the Panama Canal; the Eiffel Tower;
the invention of the printing press; the invention of writing; the first Olympic Games; the moon landing;
the discovery of penicillin; the fall of Constantinople; the Magna Carta; the women's suffrage movement;
the Great Fire of London; the Titanic; the building of the pyramids; the Great Wall of China; Stonehenge; Pompeii"""),
    "figure": phrases("""
Albert Einstein; Isaac Newton; Marie Curie; Charles Darwin; Galileo Galilei; Leonardo da Vinci; Ada Lovelace;
Alan Turing; Nikola Tesla; Thomas Edison; Louis Pasteur; Florence Nightingale; Rosalind Franklin; Aristotle; Plato;
Socrates; Cleopatra; Julius Caesar; Alexander the Great; Genghis Khan; Joan of Arc; Queen Victoria; Napoleon;
Abraham Lincoln; George Washington; Martin Luther King Jr.; Rosa Parks; Nelson Mandela; Mahatma Gandhi; Marco Polo;
Christopher Columbus; Ferdinand Magellan; Amelia Earhart; Neil Armstrong; William Shakespeare; Jane Austen;
Charles Dickens; Mark Twain; Emily Dickinson; Mozart; Beethoven; Bach; Vincent van Gogh; Claude Monet; Frida Kahlo;
Pablo Picasso; Michelangelo; Confucius; Archimedes; Hypatia; Johannes Gutenberg; James Watt; the Wright brothers"""),
    "country": phrases("""
France; Germany; Italy; Spain; Portugal; Greece; Turkey; Poland; Sweden; Norway; Finland; Denmark; Iceland; Ireland;
Scotland; the Netherlands; Belgium; Switzerland; Austria; Hungary; Romania; Bulgaria; Croatia; Ukraine; Russia; Egypt;
Morocco; Kenya; Nigeria; Ghana; Ethiopia; Tanzania; South Africa; Madagascar; India; Pakistan; Nepal; Bangladesh;
Sri Lanka; Thailand; Vietnam; Cambodia; Malaysia; Indonesia; the Philippines; China; Japan; South Korea; Mongolia;
Australia; New Zealand; Canada; the United States; Mexico; Cuba; Jamaica; Costa Rica; Colombia; Peru; Chile;
Argentina; Brazil; Ecuador; Bolivia; Uruguay; Israel; Jordan; Iran; Saudi Arabia; Kazakhstan; Georgia; Estonia"""),
    "city": phrases("""
Paris; London; Rome; Berlin; Madrid; Barcelona; Lisbon; Athens; Istanbul; Vienna; Prague; Budapest; Warsaw; Krakow;
Stockholm; Oslo; Copenhagen; Helsinki; Dublin; Edinburgh; Amsterdam; Brussels; Zurich; Venice; Florence; Naples;
Cairo; Marrakesh; Nairobi; Cape Town; Lagos; Dubai; Mumbai; Delhi; Kathmandu; Bangkok; Hanoi; Singapore; Hong Kong;
Shanghai; Beijing; Tokyo; Kyoto; Osaka; Seoul; Sydney; Melbourne; Auckland; Vancouver; Toronto; Montreal; New York;
Boston; Chicago; Seattle; San Francisco; Los Angeles; New Orleans; Miami; Mexico City; Havana; Lima; Bogota; Santiago;
Buenos Aires; Rio de Janeiro; Denver; Austin; Portland; Glasgow; Manchester; Hamburg; Munich; Lyon; Marseille;
Porto"""),
    "landmark": phrases("""
the Sahara; the Amazon River; the Nile; the Alps; the Himalayas; Mount Everest; the Andes; the Grand Canyon; the Dead
Sea;
the Great Barrier Reef; Lake Baikal; the Mediterranean Sea; the Arctic; Antarctica; the Pacific Ocean; Niagara Falls;
the Rocky Mountains; the Mississippi; the Danube; the Black Forest; Yellowstone; the Galapagos Islands; the Gobi Desert;
Mount Fuji; Kilimanjaro; the Serengeti; the Ganges; the Norwegian fjords; the Scottish Highlands; Hawaii; Greenland"""),
    "animals": phrases("""
dog; cat; horse; cow; pig; goat; sheep; chicken; duck; rabbit; hamster; parrot; goldfish; turtle; snake; frog; lizard;
lion; tiger; leopard; cheetah; elephant; giraffe; zebra; hippo; rhinoceros; gorilla; chimpanzee; monkey; kangaroo;
koala;
panda; polar bear; brown bear; wolf; fox; raccoon; beaver; otter; squirrel; hedgehog; mole; bat; mouse; deer; moose;
camel;
llama; dolphin; blue whale; shark; octopus; jellyfish; crab; lobster; seahorse; penguin; owl; eagle; falcon; swan; crow;
sparrow; hummingbird; flamingo; ostrich; peacock; crocodile; chameleon; tortoise; salamander; bee; ant; butterfly;
spider;
dragonfly; firefly; snail; earthworm; starfish; seal; walrus; sloth; anteater; badger; bison; donkey; platypus"""),
    "food": phrases("""
pasta; rice; bread; pizza; tomato soup; lentils; chickpeas; black beans; potatoes; carrots; spinach; mushrooms; onions;
garlic; peppers; broccoli; pumpkin; zucchini; eggplant; avocado; apples; bananas; lemons; strawberries; blueberries;
oats; yoghurt; cheese; eggs; chicken; salmon; tuna; beef; tofu; peanut butter; chocolate; honey; coconut milk; corn;
cabbage; cauliflower; cucumbers; sweet potatoes; noodles; olives; walnuts; almonds; ginger; basil; shrimp; beetroot"""),
    "dish": phrases("""
pancakes; an omelette; scrambled eggs; vegetable soup; chicken soup; lasagne; spaghetti carbonara; risotto; paella;
a Caesar salad; a Greek salad; potato salad; fried rice; chicken curry; dal; chilli con carne; tacos; burritos;
guacamole;
hummus; falafel; a burger; a sandwich; roast chicken; fish and chips; mashed potatoes; a vegetable stir-fry; ramen;
sushi;
miso soup; pad thai; spring rolls; banana bread; brownies; an apple pie; a cheesecake; chocolate chip cookies; muffins;
carrot cake; bread; pizza dough; tomato sauce; pesto; salad dressing; porridge; a smoothie; lemonade; iced tea; waffles;
French toast; shepherd's pie; goulash; ratatouille; quiche; meatballs; a tiramisu; rice pudding; jam; pickles;
granola"""),
    "object": phrases("""
bicycle; umbrella; backpack; coffee mug; water bottle; alarm clock; desk lamp; notebook; fountain pen; pair of
headphones;
keyboard; laptop; phone case; camera; tripod; tent; sleeping bag; pair of hiking boots; raincoat; scarf; wool hat;
watch;
wallet; suitcase; pillow; blanket; mattress; sofa; bookshelf; dining table; rocking chair; mirror; candle; vase; teapot;
frying pan; kitchen knife; blender; toaster; coffee machine; vacuum cleaner; washing machine; hammer; cordless drill;
garden hose; lawn mower; bird feeder; flower pot; skateboard; surfboard; yoga mat; tennis racket; football; chess set;
jigsaw puzzle; board game; guitar; violin; piano; ukulele; toothbrush; bar of soap; bottle of sunscreen; lunch box;
thermos; flashlight;
compass; map; telescope; kite; toy train; teddy bear; electric scooter; car seat; dog leash; cat tree; fish tank"""),
    "hobby": phrases("""
gardening; photography; knitting; painting; drawing; pottery; woodworking; baking; cooking; hiking; running; swimming;
cycling; climbing; yoga; dancing; singing; playing the guitar; playing the piano; chess; bird watching; fishing;
camping;
stargazing; reading; writing; journaling; calligraphy; origami; collecting stamps; model trains; board games; video
games;
learning languages; meditation; martial arts; tennis; table tennis; basketball; football; volleyball; skiing; surfing;
sailing; horse riding; beekeeping; home brewing; sewing; embroidery; magic tricks; juggling; podcasting; film
making"""),
    "subject": phrases("""
mathematics; algebra; geometry; calculus; statistics; physics; chemistry; biology; astronomy; geology; geography;
history;
economics; psychology; sociology; philosophy; literature; grammar; music theory; art history; computer science; law;
medicine; nutrition; engineering; architecture; politics; anthropology; linguistics; accounting; marketing; Spanish;
French;
German; Latin; English; Chinese; Japanese; religious studies; environmental science; drama; physical education;
statistics"""),
    "topic": phrases("""
climate change; remote work; social media; homework; school uniforms; fast food; video games; public transport;
recycling;
space exploration; artificial intelligence; electric cars; zoos; vegetarian diets; sleep; exercise; friendship;
teamwork;
leadership; time management; saving money; travelling alone; living in a big city; living in the countryside; music;
reading books; learning a second language; volunteering; pets; online shopping; online learning; university education;
healthy eating; mental health; stress; parenting; growing old; first impressions; failure; success; honesty; kindness;
gratitude; patience; ambition; privacy; advertising; tourism; museums; public libraries; nuclear power; wind power;
plastic waste; water shortages; housing costs; minimum wages; a four-day working week; screen time for children; sports;
fashion; coffee; tea; board games; movies; podcasts; newspapers; handwriting; cash; gardening; noise; traffic;
weekends"""),
    "health": phrases("""
a headache; a common cold; a sore throat; back pain; insomnia; hay fever; a sunburn; a sprained ankle; dehydration;
stress;
anxiety before exams; tired eyes; poor posture; dry skin; a mosquito bite; heartburn; seasickness; jet lag; muscle
cramps;
low energy; high blood pressure; a vitamin D deficiency; a nosebleed; snoring; hiccups; a blister; a toothache; flu"""),
    "element": phrases("""
iron; gold; silver; oxygen; hydrogen; helium; carbon; nitrogen; sodium; calcium; copper; zinc; lead; mercury; chlorine;
sulphur; neon; aluminium; silicon; phosphorus; tin; nickel; titanium; iodine; argon; magnesium; potassium; uranium"""),
    "season": phrases("""
spring; summer; autumn; winter; a rainy weekend; the holidays; a heat wave; the first snow; harvest time"""),
    "color": phrases("""
red; blue; green; yellow; purple; orange; black; white; silver; gold; turquoise; grey; pink; brown"""),
    "language": phrases("""
French; Spanish; German; Italian; Portuguese; Dutch; Swedish; Polish; Japanese; Chinese; Korean; Russian; Turkish;
Greek; Latin; Hindi; Arabic; Swahili; Norwegian; Finnish"""),
    "eulanguage": phrases("""
French; Spanish; German; Italian; Portuguese; French; Spanish; German; Italian; Dutch; Swedish; Latin"""),
    "vehicle": phrases("""
train; bus; bicycle; car; tram; ferry; plane; motorbike; scooter; truck; sailing boat; hot air balloon"""),
    "company": phrases("""
bakery; coffee shop; bookshop; flower shop; hair salon; gym; yoga studio; restaurant; food truck; pizzeria; bicycle
shop;
travel agency; hotel; hostel; pet shop; toy shop; dental clinic; law firm; design agency; software company; start-up;
language school; music school; driving school; kindergarten; museum; theatre; farm; winery; brewery; garden centre;
furniture maker; cleaning company; moving company; photo studio; tea house; ice cream parlour; charity; film studio;
robotics company; solar power company; clothing brand; shoe brand; bank; insurance company; newspaper; podcast;
airline"""),
}  # fmt: skip
