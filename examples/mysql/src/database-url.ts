export const DATABASE_URL = process.env['DATABASE_URL'] ?? 'mysql://root:mysql@localhost:3306/app';
