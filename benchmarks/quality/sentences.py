"""What is said: sentences of our own, as customers and agents say them, in English and others; and two known texts."""

from typing import Final

ENGLISH: Final = (
    "I would like to know when my parcel will arrive, because I have been waiting for two weeks.",
    "The invoice for March shows a fee that nobody told me about.",
    "My printer is connected to the network but the laptop does not find it any more.",
    "Good morning, this is Peter Miller from the accounting department.",
    "Two of the six chairs were damaged when they came.",
    "Could you please reset my password? I cannot get into my account.",
    "I cancelled my subscription in January and yet you took money again.",
    "The app closes as soon as I tap on the camera button.",
    "We have moved to a new office and need the address on our contract to be changed.",
    "Is there a way to download all of my receipts at once?",
    "The technician was here yesterday and now the line is stable.",
    "Please call me back after ten, because I work at night.",
    "My flight was delayed and we missed the connection in Frankfurt.",
    "Somebody scraped my car while it was parked and drove off.",
    "How long is the guarantee on a refurbished phone?",
    "The heating stays cold however far I turn the knob.",
    "I ordered without nuts because of an allergy and found walnuts in it.",
    "Your colleague was very friendly and solved the problem in five minutes.",
    "The battery lasts forty minutes, it used to be five hours.",
    "I do not recognise a withdrawal of three hundred euros.",
    "When do I get my deposit back for the apartment?",
    "The sound is fine but the picture freezes every few seconds.",
    "We would like to upgrade from the team plan to the business plan.",
    "Can you send the manual to me by mail?",
)
FOREIGN: Final = {
    "de": (
        "Guten Tag, ich möchte wissen, wann mein Paket ankommt, denn ich warte schon seit zwei Wochen.",
        "Auf der Rechnung für März steht eine Gebühr, von der mir niemand etwas gesagt hat.",
        "Mein Drucker ist mit dem Netzwerk verbunden, aber der Rechner findet ihn nicht mehr.",
        "Können Sie bitte mein Passwort zurücksetzen? Ich komme nicht mehr in mein Konto.",
        "Die Lieferung kam am Dienstag, aber zwei der sechs Stühle waren beschädigt.",
        "Ich habe im Januar gekündigt, und trotzdem wurde wieder Geld abgebucht.",
        "Die Heizung bleibt kalt, egal wie weit ich den Knopf drehe.",
        "Bitte rufen Sie mich nach zehn Uhr zurück, weil ich nachts arbeite.",
    ),
    "es": (
        "Buenos días, quisiera saber cuándo llega mi paquete, porque llevo dos semanas esperando.",
        "En la factura de marzo aparece un cargo del que nadie me habló.",
        "Mi impresora está conectada a la red, pero el ordenador ya no la encuentra.",
        "¿Puede usted restablecer mi contraseña? No puedo entrar en mi cuenta.",
        "La entrega llegó el martes, pero dos de las seis sillas estaban dañadas.",
        "Cancelé la suscripción en enero y aun así me han vuelto a cobrar.",
        "La calefacción sigue fría por mucho que gire el mando.",
        "Llámeme después de las diez, por favor, porque trabajo de noche.",
    ),
    "fr": (
        "Bonjour, je voudrais savoir quand mon colis va arriver, car j'attends depuis deux semaines.",
        "Sur la facture de mars, il y a des frais dont personne ne m'a parlé.",
        "Mon imprimante est connectée au réseau, mais l'ordinateur ne la trouve plus.",
        "Pouvez-vous réinitialiser mon mot de passe ? Je n'arrive plus à me connecter.",
        "La livraison est arrivée mardi, mais deux des six chaises étaient abîmées.",
        "J'ai résilié mon abonnement en janvier et vous m'avez encore prélevé.",
        "Le chauffage reste froid, même si je tourne le bouton à fond.",
        "Rappelez-moi après dix heures, s'il vous plaît, parce que je travaille la nuit.",
    ),
    "it": (
        "Buongiorno, vorrei sapere quando arriva il mio pacco, perché aspetto da due settimane.",
        "Nella fattura di marzo c'è una spesa di cui nessuno mi ha parlato.",
        "La mia stampante è collegata alla rete, ma il computer non la trova più.",
        "Potete reimpostare la mia password? Non riesco più a entrare nel mio account.",
    ),
    "pl": (
        "Dzień dobry, chciałbym wiedzieć, kiedy dotrze moja paczka, bo czekam już dwa tygodnie.",
        "Na fakturze za marzec jest opłata, o której nikt mi nie powiedział.",
        "Czy może pan zresetować moje hasło? Nie mogę zalogować się na swoje konto.",
        "Proszę oddzwonić po dziesiątej, bo pracuję w nocy.",
    ),
}
# Dickens, A Tale of Two Cities; Beckett, Worstward Ho.
READINGS: Final = {
    "two_cities.wav": "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was "
    "the season of darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we "
    "had nothing before us, we were all going direct to heaven, we were all going direct the other way. In short, the "
    "period was so far like the present period, that some of its noisiest authorities insisted on its being received, "
    "for good or for evil, in the superlative degree of comparison only.",
    "beckett.wav": "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
}
